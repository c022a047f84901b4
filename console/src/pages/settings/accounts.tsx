import { Plus, Trash2 } from "lucide-react";
import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { logIn, useSession } from "../../api/session.ts";
import { ConfirmButton } from "../../parts/actions.tsx";
import { Button, Time } from "../../parts/basics.tsx";
import type { Filters } from "../../parts/filters.tsx";
import { useFilters } from "../../parts/filters.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { formatBytes } from "../../parts/words.ts";
import { useDo } from "../../shell/toasts.tsx";
import { Visible } from "../../parts/visible.tsx";
import type { CreatedAccount } from "./accountForm.tsx";
import { AccountForm, Credentials } from "./accountForm.tsx";

type Account = Response<"GET /v2/admin/accounts">["accounts"][number];

/** Returns the query of the page of accounts that the address names. */
export const accountsQuery = (values: Filters["values"]) => ({ count: 50, cursor: values["cursor"] });

/** The accounts of the store, for the operator. */
export function Accounts() {
  const { values } = useFilters();
  const accounts = useRead("GET /v2/admin/accounts", { query: accountsQuery(values) });
  const [isNew, setIsNew] = useState(false);
  const [made, setMade] = useState<CreatedAccount | null>(null);
  return (
    <>
      {made && <Credentials of={made} />}
      <Loaded query={accounts} what="The accounts">
        {({ accounts: rows, cursor }) => (
          <ListPanel
            label="Accounts"
            title="Accounts"
            end={
              <Button isSmall icon={Plus} onClick={() => setIsNew(true)}>
                New account
              </Button>
            }
            columns={columns}
            rows={rows}
            keyOf={({ id }) => id}
            words={["account", "accounts"]}
            cursor={cursor}
            empty={null}
          />
        )}
      </Loaded>
      {isNew && <AccountForm close={() => setIsNew(false)} done={setMade} />}
    </>
  );
}

const columns: readonly Column<Account>[] = [
  {
    head: "State",
    className: "c-state w-state",
    cell: ({ state }) => (
      <State
        state={state === "active" ? "delivered" : "paused"}
        word={state === "active" ? "Active" : "Disabled"}
      />
    ),
  },
  {
    head: "Account",
    className: "c-what",
    cell: ({ name, id }) => (
      <>
        <div className="l1">
          <span className="t host">
            <Visible text={name} />
          </span>
        </div>
        <div className="l2">
          <span className="t id">{id}</span>
        </div>
      </>
    ),
  },
  { head: "Plan", className: "p2 w-s", cell: ({ plan }) => plan },
  { head: "Stored", className: "num c-when w-s", cell: ({ storedBytes }) => formatBytes(storedBytes) },
  { head: "Created", className: "num time p3 w-m", cell: ({ createdAt }) => <Time at={createdAt} /> },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-source",
    cell: (account) => <Actions account={account} />,
  },
];

function Actions({ account }: { account: Account }) {
  const { id, name, state } = account;
  const [isOpen, setIsOpen] = useState(false);
  const { setSession } = useSession();
  const client = useQueryClient();
  const navigate = useNavigate();
  const act = useDo();
  const params = { account: id };
  const enter = async (): Promise<void> => {
    const opened = await logIn({ switchTo: id });
    client.clear();
    setSession(opened);
    await navigate({ to: "/" });
  };
  const enable = () => send("POST /v2/admin/accounts/{account}/enable", { params });
  return (
    <span className="actions end">
      {state === "active" ? (
        <ConfirmButton
          title={`Disable account ${name}`}
          verb="Disable account"
          text="Disable"
          isAllowed
          act={() => send("POST /v2/admin/accounts/{account}/disable", { params })}
        >
          <p>Until you enable it again, it can only read.</p>
        </ConfirmButton>
      ) : (
        <>
          <ConfirmButton
            title={`Delete account ${name}`}
            verb="Delete account"
            icon={Trash2}
            typed={name}
            isAllowed
            act={() => send("DELETE /v2/admin/accounts/{account}", { params })}
          >
            <p>
              Its messages and runs are cancelled. Its settings and dead letters are deleted and cannot be
              restored.
            </p>
          </ConfirmButton>
          <Button isSmall onClick={() => void act(enable, `Account ${name} is enabled`)}>
            Enable
          </Button>
        </>
      )}
      <Button isSmall onClick={() => setIsOpen(true)}>
        Edit
      </Button>
      <Button isSmall onClick={() => void act(enter, `Switched to account ${name}`)}>
        Switch
      </Button>
      {isOpen && <AccountForm account={account} close={() => setIsOpen(false)} />}
    </span>
  );
}
