import { useParams } from "@tanstack/react-router";
import { ChevronRight, Play, RotateCw, X } from "lucide-react";
import { useState } from "react";
import { send } from "../../api/client.ts";
import { pace, useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Icon, Time, useNow } from "../../parts/basics.tsx";
import { useFilters } from "../../parts/filters.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { Payload } from "../../parts/payload.tsx";
import { Visible } from "../../parts/visible.tsx";
import { State } from "../../parts/state.tsx";
import { Empty, SkeletonRows } from "../../parts/trouble.tsx";
import { formatCount, formatSpan } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { useDo } from "../../shell/toasts.tsx";
import { CompareRun } from "./compare.tsx";
import { Failure } from "./failure.tsx";
import { RunLog } from "./runLog.tsx";
import { RunPayload } from "./runPayload.tsx";
import type { Run } from "./shapes.ts";
import { listSteps, runStates, spanOf } from "./shapes.ts";
import { Timeline } from "./timeline.tsx";
import type { RunStatus } from "./waits.tsx";
import { RunWaits } from "./waits.tsx";

/** One run: its state, its failed step, and its timeline. */
export function RunPage() {
  const { id = "" } = useParams({ strict: false });
  const [isEnded, setIsEnded] = useState(false);
  const found = useRead(
    "GET /v2/workflows/logs",
    { query: { workflowRunId: id, count: 1 } },
    { every: isEnded ? null : pace.run },
  );
  const run = found.data?.runs[0];
  const ended = run !== undefined && run.workflowState !== "RUN_STARTED";
  const isActive = run !== undefined && !ended;
  const status = useRead(
    "GET /v2/workflows/runs/{workflowRunId}/status",
    { params: { workflowRunId: id } },
    { every: pace.run, enabled: isActive, keep: false },
  );
  if (ended !== isEnded) setIsEnded(ended);
  return (
    <Page
      title={id}
      isFinal={ended}
      crumbs={
        <>
          <PageLink to="/runs">Runs</PageLink>
          <Icon of={ChevronRight} />
        </>
      }
    >
      <Loaded query={found} what={`Run ${id}`}>
        {() =>
          isActive && status.isPending ? (
            <div aria-busy="true">
              <SkeletonRows />
            </div>
          ) : run ? (
            <RunParts run={run} status={status.data} />
          ) : (
            <Panel>
              <Empty title="Run not found">
                <p>It may have expired, or it belongs to another account.</p>
              </Empty>
            </Panel>
          )
        }
      </Loaded>
    </Page>
  );
}

const views = [
  { view: undefined, name: "Steps" },
  { view: "log", name: "Log" },
  { view: "payload", name: "Payload" },
  { view: "compare", name: "Compare" },
] as const;

function RunParts({ run, status }: { run: Run; status: RunStatus | undefined }) {
  const [isTrue, setIsTrue] = useState(false);
  const { values } = useFilters();
  const ticking = useNow();
  const now = run.workflowRunCompletedAt ?? ticking;
  const { view } = values;
  const isSteps = !views.some((one) => one.view !== undefined && one.view === view);
  const path = `/runs/${encodeURIComponent(run.workflowRunId)}`;
  return (
    <>
      <RunHead run={run} now={now} />
      {run.workflowState === "RUN_FAILED" && <Failure run={run} />}
      {status && run.workflowState === "RUN_STARTED" && <RunWaits status={status} />}
      <div className="toolbar">
        <nav className="tabs plain" aria-label="View">
          {views.map((one) => (
            <PageLink key={one.name} to={path} search={{ view: one.view }}>
              {one.name}
              {one.view === undefined && <span className="n">{formatCount(listSteps(run).length)}</span>}
            </PageLink>
          ))}
        </nav>
        <span className="spring" />
        {isSteps && (
          <label className="choice">
            <input className="check" type="checkbox" checked={!isTrue} onChange={() => setIsTrue(!isTrue)} />
            Collapse idle time
          </label>
        )}
      </div>
      {isSteps && (
        <>
          <Timeline key={`${run.workflowRunId} ${run.workflowState}`} run={run} isTrue={isTrue} now={now} />
          <Outcome run={run} />
        </>
      )}
      {view === "log" && <RunLog run={run} />}
      {view === "payload" && <RunPayload run={run} />}
      {view === "compare" && <CompareRun run={run} />}
    </>
  );
}

/** The result of a run that succeeded. */
const Outcome = ({ run }: { run: Run }) =>
  run.workflowRunResponse === undefined && run.workflowRunResponseBase64 === undefined ? null : (
    <Panel title="Result">
      <div className="body">
        <Payload
          text={run.workflowRunResponse}
          base64={run.workflowRunResponseBase64}
          label="Result of the run"
          isCut={run.truncated}
        />
      </div>
    </Panel>
  );

function RunHead({ run, now }: { run: Run; now: number }) {
  const steps = listSteps(run);
  const done = steps.filter(({ state }) => state === "STEP_SUCCESS").length;
  const labels = run.labels ?? (run.label === undefined ? [] : [run.label]);
  return (
    <section className="hero">
      <div className="line">
        <State {...runStates[run.workflowState]} isPill />
        <div className="actions">
          <RunActions run={run} />
        </div>
      </div>
      <dl className="facts">
        <Fact name="Workflow">
          <Visible text={run.workflowUrl} />
        </Fact>
        <Fact name="Started">
          <Time at={run.workflowRunCreatedAt} />
        </Fact>
        <Fact name="Duration">{formatSpan(spanOf(run, now))}</Fact>
        <Fact name="Steps">
          {done} of {steps.length} done
        </Fact>
        {run.invoker && (
          <Fact name="Invoked by">
            <RunLink id={run.invoker.workflowRunId} />
          </Fact>
        )}
        {run.resumedFrom && (
          <Fact name="Resumed from">
            <RunLink id={run.resumedFrom.workflowRunId} />
          </Fact>
        )}
        {run.resumedAs && (
          <Fact name="Resumed as">
            <RunLink id={run.resumedAs.workflowRunId} />
          </Fact>
        )}
        {labels.length > 0 && (
          <Fact name={labels.length === 1 ? "Label" : "Labels"}>
            {labels.map((label) => (
              <span key={label} className="chip">
                <Visible text={label} />
              </span>
            ))}
          </Fact>
        )}
      </dl>
    </section>
  );
}

const RunLink = ({ id }: { id: string }) => (
  <PageLink className="link" to={`/runs/${encodeURIComponent(id)}`}>
    {id}
  </PageLink>
);

const Fact = ({ name, children }: { name: string; children: React.ReactNode }) => (
  <div>
    <dt>{name}</dt>
    <dd>{children}</dd>
  </div>
);

function RunActions({ run }: { run: Run }) {
  const may = useMay();
  const act = useDo();
  if (!may.manage) return null;
  const { workflowRunId, workflowState, dlqId } = run;
  if (workflowState === "RUN_STARTED") {
    const params = { workflowRunId };
    const cancel = () => send("DELETE /v2/workflows/runs/{workflowRunId}", { params });
    return (
      <Button kind="danger" icon={X} onClick={() => void act(cancel, "The run is cancelled")}>
        Cancel run
      </Button>
    );
  }
  if (dlqId === undefined) return null;
  const params = { dlqId };
  const restart = () => send("POST /v2/workflows/dlq/restart/{dlqId}", { params });
  const resume = () => send("POST /v2/workflows/dlq/resume/{dlqId}", { params });
  return (
    <>
      <Button
        icon={RotateCw}
        onClick={() => void act(restart, "The run is started again from the beginning")}
      >
        Restart
      </Button>
      <Button
        kind="primary"
        icon={Play}
        onClick={() => void act(resume, "The run is resumed from the failed step")}
      >
        Resume
      </Button>
    </>
  );
}
