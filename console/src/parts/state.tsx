import type { ReactNode } from "react";
import type { StateName } from "./stateName.ts";

const line = {
  fill: "none",
  stroke: "currentColor",
  strokeWidth: 1.75,
  strokeLinecap: "round",
  strokeLinejoin: "round",
} as const;
const hole = {
  className: "hole",
  fill: "none",
  strokeWidth: 1.75,
  strokeLinecap: "round",
  strokeLinejoin: "round",
} as const;
const disc = "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Z";

const shapes: Record<StateName, ReactNode> = {
  cancelled: (
    <>
      <circle cx="8" cy="8" r="6" {...line} />
      <path d="m4.4 11.6 7.2-7.2" {...line} />
    </>
  ),
  delivered: (
    <>
      <circle cx="8" cy="8" r="7" fill="currentColor" />
      <path d="M5 8.3 7.1 10.4 11.1 5.9" {...hole} />
    </>
  ),
  delivering: (
    <>
      <circle cx="8" cy="8" r="6.1" fill="none" stroke="currentColor" strokeWidth="1.75" />
      <path d="M8 4.4a3.6 3.6 0 0 1 0 7.2Z" fill="currentColor" />
    </>
  ),
  failed: (
    <>
      <circle cx="8" cy="8" r="7" fill="currentColor" />
      <path d="m5.7 5.7 4.6 4.6m0-4.6-4.6 4.6" {...hole} />
    </>
  ),
  held: (
    <path fill="currentColor" fillRule="evenodd" d={`${disc}M5.2 7h5.6a1 1 0 0 1 0 2H5.2a1 1 0 0 1 0-2Z`} />
  ),
  paused: (
    <path fill="currentColor" fillRule="evenodd" d={`${disc}M5.5 5.2h1.8v5.6H5.5ZM8.7 5.2h1.8v5.6H8.7Z`} />
  ),
  pending: <circle cx="8" cy="8" r="6" {...line} strokeDasharray="1.9 2.81" />,
  retrying: <path d="M13.6 8.6a5.7 5.7 0 1 1-1.5-4.5l1.6 1.5M13.9 2.3v3.4h-3.4" {...line} />,
};

/** The shape of a state. */
export const Glyph = ({ state }: { state: StateName }) => (
  <svg className={`glyph g-${state}`} viewBox="0 0 16 16" aria-hidden="true">
    {shapes[state]}
  </svg>
);

/** A state: its shape and its word. As a pill, at most once on a page. */
export const State = ({
  state,
  word,
  isPill = false,
}: {
  state: StateName;
  word: string;
  isPill?: boolean;
}) => (
  <span className={`state ${state}${isPill ? " pill" : ""}`}>
    <Glyph state={state} />
    <span className="w">{word}</span>
  </span>
);
