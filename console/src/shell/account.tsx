import { useQueryClient } from "@tanstack/react-query";
import { LogOut } from "lucide-react";
import { useRead } from "../api/queries.ts";
import { logIn, logOut, useSession } from "../api/session.ts";
import { Button, Time } from "../parts/basics.tsx";
import { Dialog, useAction } from "../parts/dialog.tsx";
import { Refused } from "../parts/trouble.tsx";

/** The account of the session: its rights, a switch for the operator, and the log-out. */
export function AccountMenu({ isOpen, close }: { isOpen: boolean; close(): void }) {
  const { session, setSession } = useSession();
  const client = useQueryClient();
  const { error, isBusy, run } = useAction();
  const leave = (): void =>
    void run(async () => {
      const ended = await logOut();
      client.clear();
      setSession({ ...ended, hasOperator: session.hasOperator });
    });
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
        <Button icon={LogOut} onClick={leave} disabled={isBusy}>
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
