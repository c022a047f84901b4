import { Play } from "lucide-react";
import { useQueryClient } from "@tanstack/react-query";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { logIn, useSession } from "../../api/session.ts";
import { ConfirmButton } from "../../parts/actions.tsx";
import { Button, Time } from "../../parts/basics.tsx";
import { useFilters } from "../../parts/filters.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatBytes, formatCount } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { useDo } from "../../shell/toasts.tsx";
import { Visible } from "../../parts/visible.tsx";

type Account = Response<"GET /v2/admin/accounts">["accounts"][number];

/** The server and its accounts, for the operator. */
export function OperatorPage() {
  const { session } = useSession();
  return (
    <Page title="Operator">
      {session.operator ? (
        <>
          <Health />
          <Accounts />
        </>
      ) : (
        <Panel>
          <Empty title="Only for the operator">
            <p>Log out, and log in with the operator’s password.</p>
          </Empty>
        </Panel>
      )}
    </Page>
  );
}

/** The health of the server that responds, and the end of a hold. */
function Health() {
  const found = useRead("GET /v2/health/ready");
  const act = useDo();
  const endHold = () => send("POST /v2/admin/unhold");
  const { held = false, diskLow = false, diskShort = false, inFlight } = found.data ?? {};
  const facts = found.data
    ? [
        diskLow
          ? { state: "failed" as const, word: "Refuses new messages: the disk is almost full" }
          : { state: "delivered" as const, word: "Accepts messages" },
        ...(diskShort
          ? [{ state: "retrying" as const, word: "Removes old history early: the disk has little room" }]
          : []),
        held
          ? { state: "paused" as const, word: "Holds all deliveries" }
          : { state: "delivered" as const, word: "Delivers messages" },
      ]
    : found.isPending
      ? // As many lines as there will be, so that nothing below moves.
        ["Reads the health", "…"].map((word) => ({ state: "pending" as const, word }))
      : [{ state: "failed" as const, word: "Not ready" }];
  return (
    <Panel
      title="This server"
      sub={inFlight !== undefined && `${formatCount(inFlight)} in flight`}
      end={
        held && (
          <Button isSmall icon={Play} onClick={() => void act(endHold, "The hold has ended")}>
            End the hold
          </Button>
        )
      }
    >
      <ul className="body stack">
        {facts.map(({ state, word }) => (
          <li key={word}>
            <State state={state} word={word} />
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Accounts() {
  const { values } = useFilters();
  const accounts = useRead("GET /v2/admin/accounts", { query: { count: 50, cursor: values["cursor"] } });
  return (
    <Loaded query={accounts} what="The accounts">
      {({ accounts: rows, cursor }) => (
        <ListPanel
          label="Accounts"
          title="Accounts"
          columns={columns}
          rows={rows}
          keyOf={({ id }) => id}
          words={["account", "accounts"]}
          cursor={cursor}
          empty={null}
        />
      )}
    </Loaded>
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
    className: "act w-tok",
    cell: (account) => <Actions account={account} />,
  },
];

function Actions({ account: { id, name, state } }: { account: Account }) {
  const { setSession } = useSession();
  const client = useQueryClient();
  const act = useDo();
  const params = { account: id };
  const enter = async (): Promise<void> => {
    const opened = await logIn({ switchTo: id });
    client.clear();
    setSession(opened);
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
        <Button isSmall kind="ghost" onClick={() => void act(enable, `Account ${name} is enabled`)}>
          Enable
        </Button>
      )}
      <Button isSmall onClick={() => void act(enter, `Switched to account ${name}`)}>
        Switch
      </Button>
    </span>
  );
}
