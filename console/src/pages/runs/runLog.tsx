import type { Response } from "../../api/client.ts";
import { pace, useRead } from "../../api/queries.ts";
import { Shortened } from "../../parts/cells.tsx";
import { useFilters } from "../../parts/filters.tsx";
import { PageLink } from "../../parts/link.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatExact, formatTimeOfDay } from "../../parts/words.ts";
import { logStates } from "../messages/states.ts";
import type { Run } from "./shapes.ts";
import { runStates } from "./shapes.ts";

type RunEvent = Response<"GET /v2/workflows/messageLogs">["events"][number];

const words: Record<RunEvent["state"], (typeof logStates)[keyof typeof logStates]> = {
  ...logStates,
  ...runStates,
  RUN_STARTED: { state: "pending", word: "Run started" },
  RUN_SUCCESS: { state: "delivered", word: "Run ended" },
  RUN_FAILED: { state: "failed", word: "Run failed" },
  RUN_CANCELED: { state: "cancelled", word: "Run canceled" },
  WAITER_ADDED: { state: "pending", word: "Waits" },
  INVOKED: { state: "pending", word: "Run invoked" },
};

/** The events of a run, from its beginning: of its messages, its waits and its failures. */
export function RunLog({ run }: { run: Run }) {
  const { values } = useFilters();
  const isEnded = run.workflowState !== "RUN_STARTED";
  const { workflowRunId, workflowRunCreatedAt } = run;
  const query = {
    workflowRunId,
    workflowCreatedAt: workflowRunCreatedAt,
    trimBody: 300,
    count: 100,
    cursor: values["cursor"],
  };
  const found = useRead("GET /v2/workflows/messageLogs", { query }, { every: isEnded ? null : pace.run });
  return (
    <Loaded query={found} what="The log of the run">
      {({ events, cursor }) => (
        <ListPanel
          label="Log of the run"
          className="cards"
          columns={columns}
          rows={events}
          keyOf={(event) => String(events.indexOf(event))}
          words={["entry", "entries"]}
          cursor={cursor}
          empty={
            <Empty title="No entries">
              <p>The entries of the log expire with their retention.</p>
            </Empty>
          }
        />
      )}
    </Loaded>
  );
}

const columns: readonly Column<RunEvent>[] = [
  {
    head: "Time",
    className: "time w-m c-when",
    cell: ({ time }) => <time title={formatExact(time)}>{formatTimeOfDay(time)}</time>,
  },
  { head: "Event", className: "c-state w-state", cell: ({ state }) => <State {...words[state]} /> },
  {
    head: "Step",
    className: "c-what",
    cell: ({ stepInfo }) => <Shortened text={stepInfo?.stepName ?? ""} />,
  },
  {
    head: "Response",
    className: "c-why w-why",
    cell: ({ state, responseStatus, error }) => (
      <div className="l1">
        {responseStatus !== undefined && (
          <b className={state === "ERROR" ? "code-bad" : undefined}>{responseStatus}</b>
        )}
        <Shortened text={error} />
      </div>
    ),
  },
  {
    head: "Message",
    className: "p2 w-id",
    cell: ({ messageId }) =>
      messageId !== undefined && (
        <PageLink
          className="link id"
          to="/messages"
          search={{ view: "log", open: messageId, messageId }}
          title={messageId}
        >
          {messageId}
        </PageLink>
      ),
  },
];
