import type { ListedRun } from "./listedRun.ts";
import { describeSteps, toSquares } from "./listedRun.ts";

/** The steps of a run as squares, with their number. */
export function Squares({ run }: { run: ListedRun }) {
  const squares = toSquares(run);
  return (
    <>
      {squares.length > 0 && (
        <svg className="squares" aria-hidden="true" width={squares.length * 10} height="8">
          {squares.map((kind, at) => (
            <rect key={at} className={kind} x={at * 10} width="8" height="8" rx="1" />
          ))}
        </svg>
      )}
      <div className="l2">{describeSteps(run)}</div>
    </>
  );
}
