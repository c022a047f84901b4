import { PageLink } from "../../parts/link.tsx";
import { Payload } from "../../parts/payload.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatClock } from "../../parts/words.ts";
import type { Step } from "./shapes.ts";
import { describeError } from "./shapes.ts";

/** The result and the failed attempts of a step, below its row. */
export function StepDetail({ step }: { step: Step }) {
  const errors = step.errors ?? [];
  return (
    <div className="tl-detail">
      <div className="cols">
        <div>
          <h3>Result</h3>
          {step.out === undefined && step.outBase64 === undefined ? (
            <p className="muted">none</p>
          ) : (
            <Payload text={step.out} base64={step.outBase64} label={`Result of ${step.stepName}`} />
          )}
        </div>
        <div>
          <h3>Failed attempts</h3>
          {errors.length === 0 && <p className="muted">none</p>}
          {errors.slice(-10).map((error, at) => (
            <p key={at} className="err">
              <b>{error.status ?? ""} </b>
              <Visible text={describeError(error).slice(0, 1_000)} />
              <span className="fade">{formatClock(error.time, Date.now())}</span>
            </p>
          ))}
          {step.messageId !== undefined && (
            <p>
              <PageLink
                className="link"
                to="/messages"
                search={{ view: "log", open: step.messageId, messageId: step.messageId }}
              >
                Message of this step
              </PageLink>
            </p>
          )}
        </div>
      </div>
    </div>
  );
}
