import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { LogOut, ShieldCheck } from "lucide-react";
import { useRead } from "../api/queries.ts";
import { logIn, logOut, useSession } from "../api/session.ts";
import { Button, Time } from "../parts/basics.tsx";
import { Dialog, useAction } from "../parts/dialog.tsx";
import { Refused } from "../parts/trouble.tsx";
import { operatorPlace } from "./places.ts";

/** Ends the session, which shows the login. */
function useLeave(): { error: unknown; isBusy: boolean; leave(): Promise<boolean> } {
  const { session, setSession } = useSession();
  const client = useQueryClient();
  const { error, isBusy, run } = useAction();
  const leave = (): Promise<boolean> =>
    run(async () => {
      const ended = await logOut();
      client.clear();
      setSession({ ...ended, hasOperator: session.hasOperator });
    });
  return { error, isBusy, leave };
}

/** Ends the session and shows the login of the operator. */
export function OperatorLogin() {
  const navigate = useNavigate();
  const { isBusy, leave } = useLeave();
  const open = async (): Promise<void> => {
    await navigate({ to: operatorPlace.to });
    await leave();
  };
  return (
    <Button icon={ShieldCheck} onClick={() => void open()} disabled={isBusy}>
      Log in as operator
    </Button>
  );
}

/** The account of the session: its rights, a switch for the operator, and the log-out. */
export function AccountMenu({ isOpen, close }: { isOpen: boolean; close(): void }) {
  const { session } = useSession();
  const { error, isBusy, leave } = useLeave();
  const rights =
    session.rights === "all" ? "everything" : session.rights === "read" ? "read" : session.rights?.join(", ");
  return (
    <Dialog title={session.account?.name ?? "No account"} isOpen={isOpen} close={close}>
      <div className="dialog-body">
        <dl className="kv">
          {session.account && (
            <>
              <dt>Account</dt>
              <dd className="mono">{session.account.id}</dd>
              <dt>Rights</dt>
              <dd>{rights}</dd>
            </>
          )}
          {session.expiresAt !== null && (
            <>
              <dt>Session ends</dt>
              <dd>
                <Time at={session.expiresAt} />
              </dd>
            </>
          )}
        </dl>
        {session.operator && <Switcher close={close} />}
        <Refused error={error} />
      </div>
      <footer>
        {session.hasOperator && !session.operator && <OperatorLogin />}
        <Button icon={LogOut} onClick={() => void leave()} disabled={isBusy}>
          Log out
        </Button>
      </footer>
    </Dialog>
  );
}

function Switcher({ close }: { close(): void }) {
  const { session, setSession } = useSession();
  const client = useQueryClient();
  const { error, run } = useAction();
  const accounts = useRead("GET /v2/admin/accounts", {}, { every: null });
  const change = (id: string): void =>
    void run(async () => {
      const opened = await logIn({ switchTo: id });
      client.clear();
      setSession(opened);
      close();
    });
  return (
    <label className="field">
      <span className="label">Switch to account</span>
      <select
        className="input"
        value={session.account?.id ?? ""}
        onChange={(event) => change(event.target.value)}
      >
        <option value="" disabled>
          none
        </option>
        {accounts.data?.accounts.map(({ id, name }) => (
          <option key={id} value={id}>
            {name}
          </option>
        ))}
      </select>
      <span className="hint">The audit log of the account records the switch.</span>
      <Refused error={error} />
    </label>
  );
}
