import { Play } from "lucide-react";
import { send } from "../../api/client.ts";
import { pace, useRead } from "../../api/queries.ts";
import { useSession } from "../../api/session.ts";
import { useFilters } from "../../parts/filters.tsx";
import { Button } from "../../parts/basics.tsx";
import { Panel } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatCount } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { useDo } from "../../shell/toasts.tsx";
import { AlertPanels } from "../../operations/alerts/alerts.tsx";
import { OperatorLogin } from "../../shell/account.tsx";
import { Accounts, accountsQuery } from "./accounts.tsx";
import { BusyAccounts } from "./busyAccounts.tsx";
import { Nodes } from "./nodes.tsx";

/** The server and its accounts, for the operator. */
export function OperatorPage() {
  const { session } = useSession();
  return (
    <Page title="Operator">
      {session.operator ? (
        <Parts />
      ) : (
        <Panel>
          <Empty title="Only for the operator" actions={session.hasOperator && <OperatorLogin />}>
            <p>Only the operator’s password opens this page.</p>
          </Empty>
        </Panel>
      )}
    </Page>
  );
}

/** The parts of the page. Each is shown when those above it have their height, so that none moves. */
function Parts() {
  const { values } = useFilters();
  const nodes = useRead("GET /v2/admin/nodes");
  const busy = useRead("GET /v2/admin/activity", {}, { every: pace.slow });
  const accounts = useRead("GET /v2/admin/accounts", { query: accountsQuery(values) });
  return (
    <>
      <Health />
      <Nodes />
      {!nodes.isPending && <BusyAccounts />}
      {!nodes.isPending && !busy.isPending && <Accounts />}
      {!nodes.isPending && !busy.isPending && !accounts.isPending && <AlertPanels scope="server" />}
    </>
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
          ? { state: "paused" as const, word: "All deliveries are paused" }
          : { state: "delivered" as const, word: "Delivers messages" },
      ]
    : found.isPending
      ? // As many lines as there will be, so that nothing below moves.
        ["Checking health", "…"].map((word) => ({ state: "pending" as const, word }))
      : [{ state: "failed" as const, word: "Not ready" }];
  return (
    <Panel
      title="This server"
      sub={inFlight !== undefined && `${formatCount(inFlight)} in flight`}
      end={
        held && (
          <Button isSmall icon={Play} onClick={() => void act(endHold, "Deliveries are resumed")}>
            Resume deliveries
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
