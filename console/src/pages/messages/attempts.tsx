import { Fragment } from "react";
import { Time, useNow } from "../../parts/basics.tsx";
import { Payload } from "../../parts/payload.tsx";
import { settledText, withoutStatus } from "../../parts/cells.tsx";
import { Visible } from "../../parts/visible.tsx";
import { Glyph } from "../../parts/state.tsx";
import { decodeBody, formatBytes, formatMany, formatSpan } from "../../parts/words.ts";
import type { HistoryEntry, Phase } from "./logRows.ts";
import { isReported, listPhases, toHistory } from "./logRows.ts";
import type { LogEntry } from "./states.ts";
import { logStates } from "./states.ts";

type AttemptsProps = { entries: readonly LogEntry[] };

/** The attempts of a message and the other events of its log, newest first, with the time between them. */
export function Attempts({ entries: logged }: AttemptsProps) {
  const entries = toHistory(logged);
  const count = entries.filter(({ number }) => number !== undefined).length;
  const [newest] = entries;
  return (
    <section>
      <h2>
        Attempts
        <span className="end">
          {formatMany(count, "attempt")}
          {newest && count <= newest.maxRetries + 1 && ` of up to ${newest.maxRetries + 1}`}, newest first
        </span>
      </h2>
      <ol className="attempts">
        {entries.map((entry, at) => {
          const before = entries[at + 1];
          const pause = before ? (entry.attempt?.startedAt ?? entry.time) - before.time : 0;
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

/** The parts of an attempt as a bar and as text. */
const Phases = ({ phases }: { phases: readonly Phase[] }) => {
  const total = phases.reduce((sum, { span }) => sum + span, 0);
  let at = 0;
  return (
    <>
      <svg className="phases" aria-hidden="true">
        {phases.map(({ name, span, className }) => {
          const x = (100 * at) / total;
          at += span;
          return (
            <rect
              key={name}
              className={className}
              x={`${x}%`}
              width={`${(100 * span) / total}%`}
              height="100%"
            />
          );
        })}
      </svg>
      <span className="more">{phases.map(({ name, span }) => `${name} ${formatSpan(span)}`).join(", ")}</span>
    </>
  );
};

function Attempt({ entry }: { entry: HistoryEntry }) {
  const now = useNow();
  const { state, word } = logStates[entry.state];
  const { number, responseStatus, nextDeliveryTime, attempt, explanation } = entry;
  const error = withoutStatus(entry.error, responseStatus);
  const isBad = state === "failed" || state === "retrying";
  const phases = attempt ? listPhases(attempt) : [];
  return (
    <li>
      <Glyph state={state} />
      <Time at={attempt?.startedAt ?? entry.time} as="clock" />
      <span>
        {number === undefined ? word : `${number}. `}
        {number !== undefined && (
          <b className={isBad ? "code-bad" : undefined}>{responseStatus ?? (isBad ? "no response" : word)}</b>
        )}
        {entry.isLast && ", the last one"}
      </span>
      <span className="took">
        {attempt && <span title={`on node ${attempt.node}`}>{formatSpan(attempt.duration)}</span>}
        {nextDeliveryTime !== undefined && nextDeliveryTime > now && (
          <>
            {attempt && ", "}next <Time at={nextDeliveryTime} />
          </>
        )}
      </span>
      {phases.length > 0 && <Phases phases={phases} />}
      {error !== undefined && (
        <span className="more">
          <Visible text={error.slice(0, 500)} />
        </span>
      )}
      {isReported(entry) && <span className="more">reported by its receiver</span>}
      {entry.settledBy && <span className="more">{settledText}</span>}
      <ResponseBody entry={entry} />
      {explanation !== undefined && <span className="more">{explanation}</span>}
    </li>
  );
}

/** The length of a response that is shown in its row. */
const shortBody = 160;

/** The response of an attempt: its beginning, and the whole one on request. */
function ResponseBody({ entry: { responseBody, truncated, time } }: { entry: HistoryEntry }) {
  if (responseBody === undefined) return null;
  const text = decodeBody(responseBody);
  if (text.length <= shortBody)
    return (
      <span className="more">
        <Visible text={text} />
      </span>
    );
  return (
    <details className="more">
      <summary>
        <Visible text={text.slice(0, shortBody)} />… whole response, {formatBytes(text.length)}
      </summary>
      <Payload text={text} label={`Response at ${new Date(time).toISOString()}`} isCut={truncated} />
    </details>
  );
}
