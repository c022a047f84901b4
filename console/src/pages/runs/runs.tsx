import { useNavigate } from "@tanstack/react-router";
import { Play } from "lucide-react";
import { useState } from "react";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Time, useNow } from "../../parts/basics.tsx";
import { Bulk, CannotSelect, toSelection } from "../../operations/jobs/bulk.tsx";
import { Shortened, Whole } from "../../parts/cells.tsx";
import type { FilterField } from "../../parts/filters.tsx";
import { FilterBar, useFilters } from "../../parts/filters.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { PageLink, PublishLink } from "../../parts/link.tsx";
import { newestFirst, OrderSelect } from "../../parts/orderSelect.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import { useSteady } from "../../parts/steady.ts";
import { ActButton, useChosen } from "../../parts/chosen.tsx";
import { TabCount, tabsClass, useCounts } from "../../parts/tabCount.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatMany, formatSpan, splitUrl } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { useDo } from "../../shell/toasts.tsx";
import { NotifyButton } from "../inputs/notify.tsx";
import type { ListedRun } from "./listedRun.ts";
import { describeRunWait } from "./listedRun.ts";
import { runStates, spanOf } from "./shapes.ts";
import { Squares } from "./squares.tsx";
import { Visible } from "../../parts/visible.tsx";

const views = [
  { state: undefined, name: "All", count: null },
  { state: "RUN_STARTED", name: "Running", count: "active" },
  { state: "RUN_SUCCESS", name: "Success", count: "succeeded" },
  { state: "RUN_FAILED", name: "Failed", count: "failed" },
  { state: "RUN_CANCELED", name: "Cancelled", count: "cancelled" },
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
  const runs = useRead("GET /v2/workflows/runs", { query: { count: 50, progress: "true", ...query } });
  const counts = useCounts();
  const [isActing, setIsActing] = useState(false);
  const chosen = useChosen(JSON.stringify(query));
  const navigate = useNavigate();
  const { rows, newCount, showNew } = useSteady(runs.data?.runs, keyOf, JSON.stringify(query));
  return (
    <Page title="Runs">
      <nav className={tabsClass("tabs", counts)} aria-label="State">
        {views.map(({ state, name, count }) => (
          <PageLink key={name} to="/runs" search={{ state }}>
            {name}
            {count && <TabCount of={counts.data?.runs[count]} />}
          </PageLink>
        ))}
      </nav>
      <div className="toolbar">
        <FilterBar fields={fields} fallback="workflowRunId" placeholder="Filter by id or workflow" />
        <span className="spring only-wide" />
        <OrderSelect orders={newestFirst} />
        <ActButton chosen={chosen} isActing={isActing} setActing={setIsActing} />
      </div>
      {isActing && (
        <CancelRuns
          key={chosen.ids.join(" ")}
          chosen={[
            ...new Set(
              rows.filter((row) => chosen.ids.includes(keyOf(row))).map(({ workflowRunId }) => workflowRunId),
            ),
          ]}
          close={() => {
            setIsActing(false);
            chosen.clear();
          }}
        />
      )}
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
            choice={chosen.choice}
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

function CancelRuns({ chosen, close }: { chosen: readonly string[]; close(): void }) {
  const { values } = useFilters();
  const { workflowRunId, state = "RUN_STARTED", ...others } = toSelection(values);
  const isChosen = chosen.length > 0;
  if (!isChosen && (others["messageId"] !== undefined || state !== "RUN_STARTED"))
    return <CannotSelect>Only active runs can be cancelled, and not by message.</CannotSelect>;
  return (
    <Bulk
      action="runs.cancel"
      filter={
        isChosen
          ? { workflowRunIds: chosen }
          : { ...others, ...(workflowRunId !== undefined && { workflowRunIds: [workflowRunId] }) }
      }
      isChosen={isChosen}
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
    cell: ({ workflowRunId, workflowUrl, label }) => (
      <>
        <div className="l1">
          <Whole text={workflowRunId} isName />
        </div>
        <div className="l2">
          <Shortened text={splitUrl(workflowUrl).path || workflowUrl} />
          {label !== undefined && <Shortened text={label} />}
        </div>
      </>
    ),
  },
  { head: "Steps", className: "p3 w-steps", cell: (run) => <Squares run={run} /> },
  { head: "Waits for, or error", className: "c-why", cell: (run) => <WhyCell run={run} /> },
  {
    head: "Started",
    className: "num time p3 w-m",
    cell: ({ workflowRunCreatedAt }) => <Time at={workflowRunCreatedAt} />,
  },
  { head: "Duration", className: "num c-when w-d", cell: (run) => <Duration run={run} /> },
];

function Duration({ run }: { run: ListedRun }) {
  const now = useNow();
  return formatSpan(spanOf(run, now));
}

/** The reason why a run waits with the button that helps, or its error. */
function WhyCell({ run }: { run: ListedRun }) {
  const now = useNow();
  const { error, waitingSteps = 0, progress } = run;
  const wait = describeRunWait(run, now);
  const eventId = progress?.waitingOn?.reason === "event" ? progress.waitingOn.eventId : undefined;
  const rest = waitingSteps > 1 ? `, and ${formatMany(waitingSteps - 1, "other step")}` : "";
  return (
    <div className="why reason">
      <div>
        <div className="l1">
          {wait ? (
            <span className="t">
              {wait.text}{" "}
              <b>
                <Visible text={wait.name} />
              </b>
              {rest}
            </span>
          ) : (
            <Shortened text={error} />
          )}
        </div>
        {wait && (
          <div className="l2">
            <span className="t">{wait.when}</span>
          </div>
        )}
        {run.resumedAs && (
          <div className="l2">
            <span className="t">
              Resumed as{" "}
              <PageLink to={`/runs/${encodeURIComponent(run.resumedAs.workflowRunId)}`}>
                {run.resumedAs.workflowRunId}
              </PageLink>
            </span>
          </div>
        )}
      </div>
      {eventId !== undefined && <NotifyButton eventId={eventId} />}
      {run.dlqId !== undefined && <ResumeButton dlqId={run.dlqId} />}
    </div>
  );
}

function ResumeButton({ dlqId }: { dlqId: string }) {
  const may = useMay();
  const act = useDo();
  const resume = () => send("POST /v2/workflows/dlq/resume/{dlqId}", { params: { dlqId } });
  return may.manage ? (
    <Button isSmall icon={Play} onClick={() => void act(resume, "The run is resumed from the failed step")}>
      Resume
    </Button>
  ) : null;
}
