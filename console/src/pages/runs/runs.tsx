import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Time, useNow } from "../../parts/basics.tsx";
import { Bulk, OtherFilters } from "../../operations/jobs/bulk.tsx";
import { Shortened } from "../../parts/cells.tsx";
import type { FilterField } from "../../parts/filters.tsx";
import { FilterBar, useFilters } from "../../parts/filters.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { PageLink, PublishLink } from "../../parts/link.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import { useSteady } from "../../parts/steady.ts";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatCount, formatMany, formatSpan, splitUrl } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { runStates, spanOf } from "./shapes.ts";
import { Visible } from "../../parts/visible.tsx";

type ListedRun = Response<"GET /v2/workflows/runs">["runs"][number];

const views = [
  { state: undefined, name: "All" },
  { state: "RUN_STARTED", name: "Running" },
  { state: "RUN_SUCCESS", name: "Success" },
  { state: "RUN_FAILED", name: "Failed" },
  { state: "RUN_CANCELED", name: "Canceled" },
] as const;

const fields: readonly FilterField[] = [
  { name: "workflowRunId", title: "Run" },
  { name: "workflowUrl", title: "Workflow", hint: "https://…" },
  { name: "label", title: "Label" },
  { name: "host", title: "Host" },
  { name: "flowControlKey", title: "Key" },
  { name: "messageId", title: "Message", hint: "msg_…" },
];

/** The runs of workflows: the current step of each, or its result. */
export function RunsPage() {
  const { values } = useFilters();
  const { back: _back, ...query } = values;
  const runs = useRead("GET /v2/workflows/runs", { query: { count: 50, ...query } });
  const may = useMay();
  const [isActing, setIsActing] = useState(false);
  const navigate = useNavigate();
  const { rows, newCount, showNew } = useSteady(runs.data?.runs, keyOf, JSON.stringify(query));
  return (
    <Page title="Runs">
      <nav className="tabs" aria-label="State">
        {views.map(({ state, name }) => (
          <PageLink key={name} to="/runs" search={{ state }}>
            {name}
          </PageLink>
        ))}
      </nav>
      <div className="toolbar">
        <FilterBar fields={fields} fallback="workflowRunId" placeholder="Filter by id or workflow" />
        <span className="spring only-wide" />
        {may.manage && (
          <Button isSmall aria-pressed={isActing} onClick={() => setIsActing(!isActing)}>
            Act on all
          </Button>
        )}
      </div>
      {isActing && <CancelRuns close={() => setIsActing(false)} />}
      <Loaded query={runs} what="The runs">
        {({ cursor }) => (
          <ListPanel
            label="Runs"
            columns={columns}
            rows={rows}
            keyOf={keyOf}
            open={({ workflowRunId }) => void navigate({ to: `/runs/${encodeURIComponent(workflowRunId)}` })}
            words={["run", "runs"]}
            cursor={cursor}
            newCount={newCount}
            showNew={showNew}
            empty={
              <Empty title="No runs" actions={<PublishLink text="Start a run" kind="run" />}>
                <p>A run starts if its workflow is triggered, here or by POST /v2/trigger/ with its URL.</p>
              </Empty>
            }
          />
        )}
      </Loaded>
    </Page>
  );
}

/** The filters by which runs can be cancelled. */
const selecting = ["workflowUrl", "label", "host", "flowControlKey"];

function CancelRuns({ close }: { close(): void }) {
  const { values } = useFilters();
  const { workflowRunId } = values;
  const isOther = values["messageId"] !== undefined || (values["state"] ?? "RUN_STARTED") !== "RUN_STARTED";
  if (isOther)
    return (
      <OtherFilters names={["messageId", "state"]}>
        Only active runs can be cancelled, and not by message. Remove these filters first.
      </OtherFilters>
    );
  return (
    <Bulk
      action="runs.cancel"
      filter={{
        ...Object.fromEntries(selecting.map((name) => [name, values[name]])),
        ...(workflowRunId !== undefined && { workflowRunIds: [workflowRunId] }),
      }}
      consequence="Steps in flight may still arrive. Ended runs do not change."
      isDangerous
      close={close}
    />
  );
}

const keyOf = ({ workflowRunId, workflowRunCreatedAt }: ListedRun): string =>
  `${workflowRunId} ${workflowRunCreatedAt}`;

const columns: readonly Column<ListedRun>[] = [
  {
    head: "State",
    className: "c-state w-state",
    cell: ({ workflowState }) => <State {...runStates[workflowState]} />,
  },
  {
    head: "Run",
    className: "c-what w-run",
    cell: ({ workflowRunId, workflowUrl }) => (
      <>
        <div className="l1">
          <span className="t host" title={workflowRunId}>
            {workflowRunId}
          </span>
        </div>
        <div className="l2">
          <Shortened text={splitUrl(workflowUrl).path || workflowUrl} />
        </div>
      </>
    ),
  },
  {
    head: "Entries",
    className: "num p2 w-s",
    cell: ({ historyEntries }) => formatCount(historyEntries),
  },
  {
    head: "Waits for, or error",
    className: "c-why",
    cell: ({ error, waitingSteps = 0 }) => (
      <div className="l1">
        <Shortened
          text={error ?? (waitingSteps > 0 ? formatMany(waitingSteps, "step waits", "steps wait") : "")}
        />
      </div>
    ),
  },
  {
    head: "Label",
    className: "p3 w-s",
    cell: ({ label }) =>
      label !== undefined && (
        <span className="chip">
          <Visible text={label} />
        </span>
      ),
  },
  {
    head: "Started",
    className: "num time p2 w-m",
    cell: ({ workflowRunCreatedAt }) => <Time at={workflowRunCreatedAt} />,
  },
  { head: "Duration", className: "num c-when w-m", cell: (run) => <Duration run={run} /> },
];

function Duration({ run }: { run: ListedRun }) {
  const now = useNow();
  return formatSpan(spanOf(run, now));
}
