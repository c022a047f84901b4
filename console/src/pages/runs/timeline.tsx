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
      <Axis scale={scale} now={now} />
      <VirtualRows count={split}>{(at) => draw(lines[at])}</VirtualRows>
      {openAt >= 0 && openRow && <StepDetail step={openRow.step} />}
      <VirtualRows count={lines.length - split}>{(at) => draw(lines[split + at])}</VirtualRows>
    </section>
  );
}

/** Scrolls to the details of the open step. While no other step was opened, that is the failed one. */
export const showOpenStep = (): void =>
  document.querySelector(".tl-detail")?.scrollIntoView({ block: "center" });

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
        <rect className="idle" x={`${x}%`} y="12" width={`${width}%`} height="10" rx="2" />
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
