import { Time } from "../../parts/basics.tsx";
import { Visible } from "../../parts/visible.tsx";
import { Glyph } from "../../parts/state.tsx";
import { decodeBody, formatMany, formatSpan } from "../../parts/words.ts";
import type { LogEntry } from "./states.ts";
import { logStates } from "./states.ts";

/** The log entries of a message, newest first, with the time between them. */
export function Attempts({ entries }: { entries: readonly LogEntry[] }) {
  return (
    <section>
      <h2>
        History
        <span className="end">{formatMany(entries.length, "entry", "entries")}, newest first</span>
      </h2>
      <ol className="attempts">
        {entries.flatMap((entry, at) => {
          const before = entries[at + 1];
          const pause = before ? entry.time - before.time : 0;
          return [
            <Attempt key={`${entry.time} ${entry.state}`} entry={entry} />,
            ...(pause > 1_000
              ? [
                  <li key={`gap ${entry.time}`} className="gap">
                    <span>{formatSpan(pause)} in between</span>
                  </li>,
                ]
              : []),
          ];
        })}
      </ol>
    </section>
  );
}

/** Returns the times of an attempt: until it was connected, until the first byte, and in all. */
function describePhases({ connect, firstByte, duration }: NonNullable<LogEntry["attempt"]>): string {
  return [
    connect !== undefined && `connected after ${formatSpan(connect)}`,
    firstByte !== undefined && `first byte after ${formatSpan(firstByte)}`,
    `ended after ${formatSpan(duration)}`,
  ]
    .filter(Boolean)
    .join(", ");
}

function Attempt({ entry }: { entry: LogEntry }) {
  const { state, word } = logStates[entry.state];
  const { responseStatus, error, responseBody, nextDeliveryTime, attempt, explanation } = entry;
  const isBad = state === "failed" || state === "retrying";
  return (
    <li>
      <Glyph state={state} />
      <Time at={entry.time} as="clock" />
      <span>
        {word}
        {responseStatus !== undefined && <b className={isBad ? "code-bad" : undefined}> {responseStatus}</b>}
      </span>
      <span className="took">
        {attempt && <span title={`on node ${attempt.node}`}>{formatSpan(attempt.duration)}</span>}
        {attempt && nextDeliveryTime !== undefined && ", "}
        {nextDeliveryTime !== undefined && (
          <>
            next <Time at={nextDeliveryTime} />
          </>
        )}
      </span>
      {attempt && <span className="more">{describePhases(attempt)}</span>}
      {(error ?? responseBody) !== undefined && (
        <span className="more">
          <Visible text={(error ?? decodeBody(responseBody ?? "")).slice(0, 500)} />
        </span>
      )}
      {explanation !== undefined && <span className="more">{explanation}</span>}
    </li>
  );
}
