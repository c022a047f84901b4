import { memo, useCallback, useEffect, useMemo, useState } from "react";
import { Glyph } from "../../parts/state.tsx";
import { VirtualRows } from "../../parts/virtual.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatClock, formatCount, formatSpan } from "../../parts/words.ts";
import { isTyping } from "../../shell/shortcuts.tsx";
import type { Fold, Line, Row } from "./rows.ts";
import { toLines, toRows } from "./rows.ts";
import type { Scale } from "./scale.ts";
import { makeScale } from "./scale.ts";
import type { Run } from "./shapes.ts";
import { stepStates } from "./shapes.ts";
import { StepDetail } from "./stepDetail.tsx";

/** The timeline of a run: its steps on one scale, with idle time cut out. It stays fast with 10,000 steps. */
export function Timeline({ run, isTrue, now }: { run: Run; isTrue: boolean; now: number }) {
  const rows = useMemo(() => toRows(run, now), [run, now]);
  const [open, setOpen] = useState(
    () => rows.find(({ step }) => step.state === "STEP_FAILED")?.index ?? null,
  );
  const [opened, setOpened] = useState<ReadonlySet<number>>(() => new Set());
  const lines = useMemo(() => toLines(rows, opened), [rows, opened]);
  const scale = useMemo(
    () =>
      makeScale(
        // Only the end of a sleep or a wait is on the axis, so that the axis has a cut before it.
        rows.map(({ from, to, isIdle }) => ({ from: isIdle ? to : from, to })),
        isTrue,
      ),
    [rows, isTrue],
  );
  const toggle = useCallback((index: number) => setOpen((known) => (known === index ? null : index)), []);
  const unfold = useCallback((index: number) => setOpened((known) => new Set([...known, index])), []);
  useNextFailure(rows, open, setOpen);
  useFailureInView();
  const openAt = lines.findIndex((line) => line.kind === "row" && line.row.index === open);
  const openRow = open === null ? undefined : rows[open];
  const draw = (line: Line | undefined) =>
    line === undefined ? null : line.kind === "fold" ? (
      <FoldRow key={line.fold.rows[0]?.index} fold={line.fold} scale={scale} unfold={unfold} />
    ) : (
      <StepRow
        key={line.row.index}
        row={line.row}
        scale={scale}
        isOpen={line.row.index === open}
        toggle={toggle}
      />
    );
  // The detail has its own height, so the rows before and after it are two lists.
  const split = openAt < 0 ? lines.length : openAt + 1;
  return (
    <section className="panel tl" aria-label="Timeline">
      <Gaps scale={scale} />
      <Axis scale={scale} now={now} />
      <VirtualRows count={split}>{(at) => draw(lines[at])}</VirtualRows>
      {openAt >= 0 && openRow && <StepDetail run={run} step={openRow.step} />}
      <VirtualRows count={lines.length - split}>{(at) => draw(lines[split + at])}</VirtualRows>
    </section>
  );
}

/**
 * Scrolls to the details of the open step, which are drawn even if its row is not. While no other step was
 * opened, that is the failed one.
 */
export const showOpenStep = (): void =>
  document.querySelector(".tl-detail")?.scrollIntoView({ block: "start" });

/** Scrolls to the failed step when the page opens, if its details begin far below. */
function useFailureInView(): void {
  useEffect(() => {
    const show = (): void => {
      const top = document.querySelector(".tl-detail")?.getBoundingClientRect().top ?? 0;
      if (top > innerHeight * 0.6) showOpenStep();
    };
    // The rows have their places only after they were measured.
    const frame = requestAnimationFrame(() => requestAnimationFrame(show));
    return () => cancelAnimationFrame(frame);
  }, []);
}

/** Opens the next failed step by the key `f`. */
function useNextFailure(rows: readonly Row[], open: number | null, setOpen: (index: number) => void): void {
  useEffect(() => {
    const act = (event: KeyboardEvent): void => {
      if (event.key !== "f" || event.metaKey || event.ctrlKey || event.altKey || isTyping(event)) return;
      const failed = rows.filter(({ step }) => step.state === "STEP_FAILED" || step.errors?.length);
      const next = failed.find(({ index }) => index > (open ?? -1)) ?? failed[0];
      if (!next) return;
      setOpen(next.index);
      requestAnimationFrame(showOpenStep);
    };
    document.addEventListener("keydown", act);
    return () => document.removeEventListener("keydown", act);
  }, [rows, open, setOpen]);
}

/** The least distance of two labels of the axis, in per cent of its width. */
const labelWidth = 12;

/** Returns the entries whose labels fit beside each other. */
function keepApart<Entry extends { x: number }>(entries: readonly Entry[]): Entry[] {
  const kept: Entry[] = [];
  for (const entry of entries)
    if (entry.x <= 100 - labelWidth / 2 && entry.x - (kept.at(-1)?.x ?? -labelWidth) >= labelWidth)
      kept.push(entry);
  return kept;
}

const Axis = ({ scale, now }: { scale: Scale; now: number }) => (
  <div className="tl-axis">
    <span>Step</span>
    <svg aria-hidden="true">
      {keepApart(scale.stretches).map(({ from, x }) => (
        <text key={x} x={`${x}%`} y="33">
          {formatClock(from, now)}
        </text>
      ))}
      {keepApart(scale.cuts).map(({ from, to, x, width }) => (
        <text key={x} className="gap-t" x={`${x + width / 2}%`} y="15">
          {formatSpan(to - from)}
        </text>
      ))}
    </svg>
    <span>Duration</span>
  </div>
);

type StepRowProps = { row: Row; scale: Scale; isOpen: boolean; toggle(index: number): void };

const StepRow = memo(function StepRow({ row, scale, isOpen, toggle }: StepRowProps) {
  const { step, index, from, to, isIn, isLast } = row;
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
    <div className={names.filter(Boolean).join(" ")} onClick={() => toggle(index)}>
      <div className="nm">
        {isIn && <i className="rail" />}
        {isIn && <i className="elbow" />}
        <span className="n">{step.stepId ?? index}</span>
        <Glyph state={state} />
        <button
          type="button"
          className="t"
          aria-expanded={isOpen}
          onClick={(event) => {
            event.stopPropagation();
            toggle(index);
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
  );
});

type FoldRowProps = { fold: Fold; scale: Scale; unfold(index: number): void };

/** Many similar steps in one row. A press shows each of them. */
function FoldRow({ fold: { rows, from, to }, scale, unfold }: FoldRowProps) {
  const [first] = rows;
  const last = rows.at(-1);
  if (!first || !last) return null;
  const x = scale.toX(from);
  return (
    <div className="tl-row fold" onClick={() => unfold(first.index)}>
      <div className="nm">
        <span className="n">{first.step.stepId ?? first.index}</span>
        <Glyph state="delivered" />
        <button type="button" className="t" aria-expanded={false}>
          <Visible text={`${first.step.stepName} to ${last.step.stepName}`} />
        </button>
        <span className="x">{formatCount(rows.length)} steps</span>
      </div>
      <svg className="lane" aria-hidden="true">
        <rect
          className="run"
          x={`${Math.min(99.4, x)}%`}
          y="9"
          width={`${Math.max(0.4, scale.toX(to) - x)}%`}
          height="16"
          rx="2"
        />
      </svg>
      <div className="du">{formatSpan(to - from)}</div>
    </div>
  );
}

function Lane({ row: { step, from, to, isIdle }, scale }: { row: Row; scale: Scale }) {
  const x = Math.min(99.4, scale.toX(from));
  const end = Math.max(x + 0.4, scale.toX(to));
  const errors = (step.errors ?? []).map(({ time }) => Math.min(99.4, scale.toX(time)));
  return (
    <svg className="lane" aria-hidden="true">
      {isIdle ? (
        <>
          <line className="idle" x1={`${x}%`} x2={`${end}%`} y1="17" y2="17" />
          <IdleText step={step} span={to - from} x={x} end={end} />
        </>
      ) : (
        <rect className={kindOf(step)} x={`${x}%`} y="12" width={`${end - x}%`} height="10" rx="2" />
      )}
      {errors.slice(1).map((at, before) => (
        <line key={at} className="back" x1={`${errors[before] ?? at}%`} x2={`${at}%`} y1="17" y2="17" />
      ))}
      {errors.map((at, index) => (
        <rect key={index} className="fail" x={`${at}%`} y="12" width="0.6%" height="10" rx="1" />
      ))}
    </svg>
  );
}

/** Returns the kind of a bar. Waits have a line instead. */
const kindOf = ({ state, stepType }: Row["step"]): string =>
  state === "STEP_FAILED"
    ? "fail"
    : /call/i.test(stepType)
      ? "call"
      : /invoke/i.test(stepType)
        ? "invoke"
        : "run";

type IdleTextProps = { step: Row["step"]; span: number; x: number; end: number };

/** How long a step slept or waited, beside its line. */
function IdleText({ step, span, x, end }: IdleTextProps) {
  const isSleep = /sleep/i.test(step.stepType);
  const isOver = step.state === "STEP_SUCCESS";
  const verb = isSleep ? (isOver ? "slept" : "sleeping for") : isOver ? "waited" : "waiting for";
  const ended = step.waitTimeout === true ? ", timeout" : "";
  const text = `${verb} ${formatSpan(span)}${ended}`;
  return end < 70 ? (
    <text x={`${end + 0.8}%`} y="21">
      {text}
    </text>
  ) : (
    <text className="endt" x={`${x - 0.8}%`} y="21">
      {text}
    </text>
  );
}

/** The cuts of the axis, behind the rows. */
const Gaps = ({ scale }: { scale: Scale }) => (
  <div className="tl-gaps" aria-hidden="true">
    <svg>
      <defs>
        <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <path className="hatch-line" d="M0 0v6" />
        </pattern>
      </defs>
      {scale.cuts.map(({ x, width }) => (
        <rect key={x} fill="url(#hatch)" x={`${x}%`} width={`${width}%`} height="100%" />
      ))}
    </svg>
  </div>
);
