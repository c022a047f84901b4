import { useMemo, useState } from "react";
import { PageLink } from "../../parts/link.tsx";
import { Payload } from "../../parts/payload.tsx";
import { Visible } from "../../parts/visible.tsx";
import { Glyph } from "../../parts/state.tsx";
import { formatClock, formatSpan } from "../../parts/words.ts";
import type { Scale } from "./scale.ts";
import { makeScale } from "./scale.ts";
import type { Run, Step } from "./shapes.ts";
import { listGroups, stepStates } from "./shapes.ts";

/** A row of the timeline: a step, when it began and ended, and its place in a group of parallel steps. */
type Row = { step: Step; from: number; to: number; isIn: boolean; isLast: boolean; isIdle: boolean };

/** The number of rows that are shown at first. A longer run shows more on demand. */
const shownAtFirst = 200;

/** The timeline of a run: its steps on one scale, with idle time cut out. */
export function Timeline({ run, isTrue, now }: { run: Run; isTrue: boolean; now: number }) {
  const rows = useMemo(() => toRows(run, now), [run, now]);
  const failedAt = rows.findIndex(({ step }) => step.state === "STEP_FAILED");
  const [open, setOpen] = useState<number | null>(failedAt < 0 ? null : failedAt);
  const [limit, setLimit] = useState(shownAtFirst);
  const scale = useMemo(
    () =>
      makeScale(
        rows.filter(({ isIdle }) => !isIdle),
        isTrue,
      ),
    [rows, isTrue],
  );
  const shown = rows.slice(0, Math.max(limit, failedAt + 1));
  return (
    <section className="panel tl" aria-label="Timeline">
      <Axis scale={scale} now={now} />
      {shown.map((row, at) => (
        <StepRow
          key={at}
          row={row}
          at={at}
          scale={scale}
          isOpen={open === at}
          toggle={() => setOpen(open === at ? null : at)}
        />
      ))}
      {rows.length > shown.length && (
        <button type="button" className="newbar" onClick={() => setLimit(limit + 1_000)}>
          {rows.length - shown.length} more steps
        </button>
      )}
    </section>
  );
}

/** Reports whether a step only waits. */
const isIdleStep = ({ stepType }: Step): boolean => /sleep|wait/i.test(stepType);

/** Returns the rows of a run. A step ends when the next group begins, or at the end of the run. */
function toRows(run: Run, now: number): Row[] {
  const end = run.workflowRunCompletedAt ?? now;
  const groups = listGroups(run);
  return groups.flatMap(({ steps, isParallel }, group) => {
    const next = groups[group + 1]?.steps.map(({ createdAt }) => createdAt) ?? [];
    const before = groups[group - 1]?.steps.map(({ createdAt }) => createdAt) ?? [];
    // When a sleep or a wait ended is not known, only when the next step had its result.
    const hasWaited = groups[group - 1]?.steps.some(isIdleStep) ?? false;
    const began = hasWaited ? Infinity : Math.max(run.workflowRunCreatedAt, ...before);
    return steps.map((step, at): Row => {
      const isDone = step.state === "STEP_SUCCESS" || step.state === "STEP_CANCELED";
      const isIdle = isIdleStep(step);
      // A step that runs is stored with its result, and a step that waits is stored when it begins.
      const from = isIdle ? step.createdAt : Math.min(began, step.createdAt);
      const to = isIdle
        ? Math.min(end, ...next.filter((time) => time >= step.createdAt))
        : isDone
          ? step.createdAt
          : end;
      return {
        step,
        from,
        to: Math.max(from, to),
        isIn: isParallel,
        isLast: at === steps.length - 1,
        isIdle,
      };
    });
  });
}

const Axis = ({ scale, now }: { scale: Scale; now: number }) => (
  <div className="tl-axis">
    <span>Step</span>
    <svg aria-hidden="true">
      {scale.stretches.slice(0, 6).map(({ from, x }) => (
        <text key={from} x={`${x}%`} y="33">
          {formatClock(from, now)}
        </text>
      ))}
      {scale.cuts.slice(0, 6).map(({ from, to, x, width }) => (
        <text key={from} className="gap-t" x={`${x + width / 2}%`} y="15">
          {formatSpan(to - from)}
        </text>
      ))}
    </svg>
    <span>Duration</span>
  </div>
);

type StepRowProps = { row: Row; at: number; scale: Scale; isOpen: boolean; toggle(): void };

function StepRow({ row, at, scale, isOpen, toggle }: StepRowProps) {
  const { step, from, to, isIn, isLast } = row;
  const { state } = stepStates[step.state];
  const names = [
    "tl-row",
    isIn && "in",
    isIn && isLast && "last",
    state === "failed" && "failed",
    isOpen && "open",
  ];
  const failures = step.errors?.length ?? 0;
  const attempts = step.state === "STEP_FAILED" ? failures : failures + 1;
  return (
    <>
      <div className={names.filter(Boolean).join(" ")} onClick={toggle}>
        <div className="nm">
          {isIn && <i className="rail" />}
          {isIn && <i className="elbow" />}
          <span className="n">{step.stepId ?? at}</span>
          <Glyph state={state} />
          <button
            type="button"
            className="t"
            aria-expanded={isOpen}
            onClick={(event) => {
              event.stopPropagation();
              toggle();
            }}
          >
            <Visible text={step.stepName} />
          </button>
          <span className="x">
            {step.stepType}
            {attempts > 1 && `, ${attempts} attempts`}
          </span>
        </div>
        <Lane row={row} scale={scale} />
        <div className="du">{formatSpan(to - from)}</div>
      </div>
      {isOpen && <StepDetail step={step} />}
    </>
  );
}

function Lane({ row: { step, from, to, isIdle }, scale }: { row: Row; scale: Scale }) {
  const x = scale.toX(from);
  const width = Math.max(0.4, scale.toX(to) - x);
  const kind =
    step.state === "STEP_FAILED"
      ? "fail"
      : /call/i.test(step.stepType)
        ? "call"
        : /invoke/i.test(step.stepType)
          ? "invoke"
          : "run";
  return (
    <svg className="lane" aria-hidden="true">
      {isIdle ? (
        <line className="idle" x1={`${x}%`} x2={`${x + Math.max(2, width)}%`} y1="17" y2="17" />
      ) : (
        <rect className={kind} x={`${Math.min(99.4, x)}%`} y="12" width={`${width}%`} height="10" rx="2" />
      )}
      {(step.errors ?? []).map(({ time }, at) => (
        <rect
          key={at}
          className="fail"
          x={`${Math.min(99.4, scale.toX(time))}%`}
          y="12"
          width="0.6%"
          height="10"
          rx="1"
        />
      ))}
    </svg>
  );
}

function StepDetail({ step }: { step: Step }) {
  const errors = step.errors ?? [];
  return (
    <div className="tl-detail">
      <div className="cols">
        <div>
          <h3>{step.out === undefined && step.outBase64 === undefined ? "No result yet" : "Result"}</h3>
          <Payload text={step.out} base64={step.outBase64} label={`Result of ${step.stepName}`} />
        </div>
        <div>
          <h3>Failed attempts</h3>
          {errors.length === 0 && <p className="muted">none</p>}
          {errors.slice(-10).map((error, at) => (
            <p key={at} className="err">
              <b>{error.status ?? ""} </b>
              <Visible text={(error.error ?? error.body ?? "").slice(0, 1_000)} />
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
