import { useParams } from "@tanstack/react-router";
import { ChevronRight, Play, RotateCw, TriangleAlert, X } from "lucide-react";
import { useState } from "react";
import { send } from "../../api/client.ts";
import { pace, useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Icon, Time, useNow } from "../../parts/basics.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { Payload } from "../../parts/payload.tsx";
import { Visible } from "../../parts/visible.tsx";
import { State } from "../../parts/state.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatMany, formatSpan } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { useDo } from "../../shell/toasts.tsx";
import type { Run } from "./shapes.ts";
import { describeError, listSteps, runStates, spanOf } from "./shapes.ts";
import { showOpenStep, Timeline } from "./timeline.tsx";

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
          run ? (
            <RunParts run={run} />
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

function RunParts({ run }: { run: Run }) {
  const [isTrue, setIsTrue] = useState(false);
  const ticking = useNow();
  const now = run.workflowRunCompletedAt ?? ticking;
  return (
    <>
      <RunHead run={run} now={now} />
      <Failure run={run} />
      <div className="toolbar">
        <h2>Timeline</h2>
        <span className="spring" />
        <label className="choice">
          <input className="check" type="checkbox" checked={!isTrue} onChange={() => setIsTrue(!isTrue)} />
          Collapse idle time
        </label>
      </div>
      <Timeline key={`${run.workflowRunId} ${run.workflowState}`} run={run} isTrue={isTrue} now={now} />
      {run.workflowRunResponse !== undefined && (
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
      )}
    </>
  );
}

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

function Failure({ run }: { run: Run }) {
  if (run.workflowState !== "RUN_FAILED") return null;
  const failed = listSteps(run).find(({ state }) => state === "STEP_FAILED");
  const last = failed?.errors?.at(-1);
  return (
    <section className="callout bad" role="status">
      <Icon of={TriangleAlert} />
      <div>
        <h2>
          <Visible
            text={
              failed
                ? `“${failed.stepName}” failed after ${formatMany(failed.errors?.length || 1, "attempt")}`
                : "The run failed"
            }
          />
        </h2>
        <p>
          <Visible text={(describeError(last) || "The failed step below has the details.").slice(0, 400)} />
        </p>
        <p>Resume sends this step again, in a new run. Finished steps keep their results.</p>
      </div>
      {failed && (
        <div className="actions">
          <Button isSmall onClick={showOpenStep}>
            Show step
          </Button>
        </div>
      )}
    </section>
  );
}
