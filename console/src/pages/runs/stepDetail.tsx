import { Play } from "lucide-react";
import type { ReactNode } from "react";
import { send } from "../../api/client.ts";
import { useMay } from "../../api/session.ts";
import { Button, CopyButton, Time } from "../../parts/basics.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Payload } from "../../parts/payload.tsx";
import { Glyph } from "../../parts/state.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatMany, splitUrl } from "../../parts/words.ts";
import { useDo } from "../../shell/toasts.tsx";
import type { Run, Step } from "./shapes.ts";
import { describeError } from "./shapes.ts";
import { findGiven, readError } from "./stepInput.ts";

/** A step below its row: its error or its result, what it was given, and its failed attempts. */
export function StepDetail({ run, step }: { run: Run; step: Step }) {
  const errors = step.errors ?? [];
  const isFailed = step.state === "STEP_FAILED";
  return (
    <div className="tl-detail">
      <div className="cols">
        <div>
          {isFailed ? <LastError run={run} step={step} /> : <Result step={step} />}
          <Request step={step} />
          {(isFailed || step.state === "STEP_RETRY") && <Given run={run} step={step} />}
        </div>
        <div>
          <h3>Failed attempts</h3>
          {errors.length === 0 && <p className="muted">none</p>}
          {errors.length > 10 && (
            <p className="muted">{formatMany(errors.length, "attempt")}, the last 10:</p>
          )}
          <ol className="attempts">
            {errors
              .slice(-10)
              .toReversed()
              .map((error, at) => (
                <li key={at}>
                  <Glyph state="failed" />
                  <Time at={error.time} as="clock" />
                  <span>
                    <b className="code-bad">{error.status ?? "No response"}</b>
                  </span>
                  <span />
                  {/* The last error is shown whole beside this list. */}
                  {!(isFailed && at === 0) && (
                    <span className="more">
                      <Visible text={describeError(error).slice(0, 300)} />
                    </span>
                  )}
                </li>
              ))}
          </ol>
          {isFailed && step.retries !== undefined && (
            <p className="sub">
              {step.retries === 0 ? "No retries" : `Up to ${formatMany(step.retries, "retry", "retries")}`},
              then the run fails.
            </p>
          )}
        </div>
      </div>
      <DetailFoot run={run} step={step} />
    </div>
  );
}

function Result({ step }: { step: Step }) {
  return (
    <>
      <h3>Result</h3>
      {step.out === undefined && step.outBase64 === undefined ? (
        <p className="muted">none</p>
      ) : (
        <Payload
          text={step.out}
          base64={step.outBase64}
          label={`Result of ${step.stepName}`}
          isCut={step.truncated}
        />
      )}
      {step.eventData !== undefined && (
        <>
          <h3>Data of the event</h3>
          <Payload text={step.eventData} label={`Event of ${step.stepName}`} />
        </>
      )}
    </>
  );
}

/** The last error of a failed step: what the endpoint responded, with its stack. */
function LastError({ run, step }: { run: Run; step: Step }) {
  const errors = step.errors ?? [];
  const last = errors.at(-1);
  const { host } = splitUrl(step.callUrl ?? run.workflowUrl);
  const shown = readError(last?.body);
  return (
    <>
      <h3>
        Error of attempt {errors.length || 1}
        {last?.status !== undefined && `, ${last.status}`} from <Visible text={host} />
      </h3>
      {shown ? (
        <div className="err">
          <b>
            <Visible text={shown.name.slice(0, 100)} />:
          </b>{" "}
          <Visible text={shown.message.slice(0, 1_000)} />
          {shown.stack.map((line, at) => (
            <span key={at} className="fade">
              <Visible text={line.slice(0, 300)} />
            </span>
          ))}
        </div>
      ) : (
        <p className="err">
          <Visible text={(last?.error ?? "There is no response.").slice(0, 1_000)} />
        </p>
      )}
      {!shown && (last?.body !== undefined || last?.bodyBase64 !== undefined) && (
        <Payload text={last.body} base64={last.bodyBase64} label="Response" isCut={last.truncated} />
      )}
      {last?.explanation !== undefined && <p className="sub">{last.explanation}</p>}
    </>
  );
}

/** The request to a third party, or the payload of a run that the step invoked. */
function Request({ step }: { step: Step }) {
  const { callUrl, callMethod, callBody, callBodyBase64, callResponseStatus, invokedWorkflowRunId } = step;
  return (
    <>
      {callUrl !== undefined && (
        <>
          <h3>Request{callResponseStatus !== undefined && `, answered ${callResponseStatus}`}</h3>
          <p className="err">
            {callMethod ?? "GET"} <Visible text={callUrl} />
          </p>
          {(callBody ?? callBodyBase64) !== undefined && (
            <Payload text={callBody} base64={callBodyBase64} label={`Request of ${step.stepName}`} />
          )}
        </>
      )}
      {invokedWorkflowRunId !== undefined && (
        <p>
          Invoked run{" "}
          <PageLink className="link" to={`/runs/${encodeURIComponent(invokedWorkflowRunId)}`}>
            <Visible text={invokedWorkflowRunId} />
          </PageLink>
        </p>
      )}
    </>
  );
}

function Given({ run, step }: { run: Run; step: Step }) {
  if (step.callUrl !== undefined) return null;
  const given = findGiven(run, step);
  return (
    <>
      <h3>What it was given</h3>
      {given.length === 0 && <p className="muted">nothing</p>}
      {given.slice(0, 5).map((one, at) => (
        <div key={at} className="stack">
          <p className="sub">
            {one.stepType === "Initial" ? (
              "Payload of the run"
            ) : (
              <>
                Result of “<Visible text={one.stepName} />”
              </>
            )}
          </p>
          <Payload text={one.out} base64={one.outBase64} label={`Given by ${one.stepName}`} />
        </div>
      ))}
    </>
  );
}

function DetailFoot({ run, step }: { run: Run; step: Step }): ReactNode {
  const may = useMay();
  const act = useDo();
  const { dlqId } = run;
  const isFailed = step.state === "STEP_FAILED";
  const last = step.errors?.at(-1);
  if (step.messageId === undefined && !isFailed) return null;
  const resume = () => send("POST /v2/workflows/dlq/resume/{dlqId}", { params: { dlqId: dlqId ?? "" } });
  return (
    <footer>
      <p>
        {isFailed &&
          dlqId !== undefined &&
          "Resume sends this step again, in a new run. The steps before it keep their results."}
      </p>
      {isFailed && last && <CopyButton text={last.body ?? last.error ?? ""}>Copy error</CopyButton>}
      {step.messageId !== undefined && (
        <PageLink
          className="btn sm"
          to="/messages"
          search={{ view: "log", open: step.messageId, messageId: step.messageId }}
        >
          Message of this step
        </PageLink>
      )}
      {isFailed && may.manage && dlqId !== undefined && (
        <Button
          isSmall
          icon={Play}
          onClick={() => void act(resume, "The run is resumed from the failed step")}
        >
          Resume from here
        </Button>
      )}
    </footer>
  );
}
