import { RotateCw } from "lucide-react";
import { useEffect } from "react";
import { send } from "../../api/client.ts";
import type { NewCredentials } from "../../api/session.ts";
import { useMay, useSession } from "../../api/session.ts";
import { ConfirmButton } from "../../parts/actions.tsx";
import { Button } from "../../parts/basics.tsx";
import { Dialog } from "../../parts/dialog.tsx";
import { Panel } from "../../parts/panel.tsx";
import { Secrets } from "../../parts/secret.tsx";

/** The password and the two tokens that every account has, and the button that replaces them. */
export function MainCredentials() {
  const { session, showCredentials } = useSession();
  const may = useMay();
  const { account } = session;
  if (account === null) return null;
  const replace = async (): Promise<void> => {
    const params = { id: account.id };
    const { password = "", token = "", ...rest } = await send("POST /v2/svc/rotate-token/{id}", { params });
    showCredentials({ account: account.name, password, token, readOnlyToken: rest.read_only_token ?? "" });
  };
  return (
    <Panel
      title="Password and main tokens"
      sub="every account has them"
      end={
        <ConfirmButton
          title={`Replace the credentials of ${account.name}`}
          verb="Replace credentials"
          text="Replace"
          icon={RotateCw}
          kind="danger"
          typed={account.name}
          isAllowed={may.password}
          act={replace}
        >
          <p>
            The password, the main token and the read-only token stop working at once, on every node. All
            sessions of the account end, also this one. Programs with these tokens are refused until they have
            the new ones. The tokens in the list above and the signing keys do not change.
          </p>
        </ConfirmButton>
      }
    >
      <p className="body">
        {may.password
          ? "Replace them if one of them has leaked."
          : "Only a session that was opened with the password can replace them."}
      </p>
    </Panel>
  );
}

/** The new credentials of an account. The session has ended, so the log-in follows. */
export function ShowCredentials({ of, close }: { of: NewCredentials; close(): void }) {
  useEffect(() => {
    const ask = (event: BeforeUnloadEvent): void => event.preventDefault();
    window.addEventListener("beforeunload", ask);
    return () => window.removeEventListener("beforeunload", ask);
  }, []);
  const rows = [
    ["Password", of.password],
    ["Token", of.token],
    ["Read-only token", of.readOnlyToken],
  ] as const;
  return (
    <Dialog title={`New credentials of ${of.account}`} close={close} isFirm isWide>
      <div className="dialog-body">
        <p>
          Copy these now. They are not shown again here. All sessions have ended: log in again after this.
        </p>
        <Secrets rows={rows} />
      </div>
      <footer>
        <Button kind="primary" onClick={close}>
          I have copied them
        </Button>
      </footer>
    </Dialog>
  );
}
