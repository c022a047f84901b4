import { Fragment } from "react";
import { Time, useNow } from "../../parts/basics.tsx";
import { Visible } from "../../parts/visible.tsx";
import { Glyph } from "../../parts/state.tsx";
import { decodeBody, formatMany, formatSpan } from "../../parts/words.ts";
import { toHistory } from "./logRows.ts";
import type { LogEntry } from "./states.ts";
import { logStates } from "./states.ts";

/** The history of a message from its log, newest first, with the time between the entries. */
export function Attempts({ entries: logged }: { entries: readonly LogEntry[] }) {
  const entries = toHistory(logged);
  return (
    <section>
      <h2>
        History
        <span className="end">{formatMany(entries.length, "entry", "entries")}, newest first</span>
      </h2>
      <ol className="attempts">
        {entries.map((entry, at) => {
          const before = entries[at + 1];
          const pause = before ? entry.time - before.time : 0;
          return (
            <Fragment key={`${entry.time} ${entry.state}`}>
              <Attempt entry={entry} />
              {pause > 1_000 && (
                <li className="gap">
                  <span>{formatSpan(pause)} in between</span>
                </li>
              )}
            </Fragment>
          );
        })}
      </ol>
    </section>
  );
}

/** Returns the times of an attempt until it was connected, and until the first byte. */
function describePhases({ connect, firstByte }: NonNullable<LogEntry["attempt"]>): string {
  return [
    connect !== undefined && `connected after ${formatSpan(connect)}`,
    firstByte !== undefined && `first byte after ${formatSpan(firstByte)}`,
  ]
    .filter(Boolean)
    .join(", ");
}

function Attempt({ entry }: { entry: LogEntry }) {
  const now = useNow();
  const { state, word } = logStates[entry.state];
  const { responseStatus, error, responseBody, nextDeliveryTime, attempt, explanation } = entry;
  const phases = attempt ? describePhases(attempt) : "";
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
        {nextDeliveryTime !== undefined && nextDeliveryTime > now && (
          <>
            {attempt && ", "}next <Time at={nextDeliveryTime} />
          </>
        )}
      </span>
      {phases !== "" && <span className="more">{phases}</span>}
      {(error ?? responseBody) !== undefined && (
        <span className="more">
          <Visible text={(error ?? decodeBody(responseBody ?? "")).slice(0, 500)} />
        </span>
      )}
      {explanation !== undefined && <span className="more">{explanation}</span>}
    </li>
  );
}
