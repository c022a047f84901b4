import { Time, useNow } from "../../parts/basics.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Glyph } from "../../parts/state.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatCount, splitUrl, withClocks } from "../../parts/words.ts";
import { EndAttempt, HelpFirst } from "./help.tsx";
import { describeWait } from "./describe.ts";
import type { Wait } from "./states.ts";
import { gateOf, stateOfWait } from "./states.ts";

const gates = ["time", "queue", "key", "endpoint", "account", "capacity"] as const;
const gateNames = {
  time: "Due time",
  queue: "Queue",
  key: "Key",
  endpoint: "Endpoint",
  account: "Account",
  capacity: "Capacity",
};

/** Why a message waits: the reason that applies now, who is ahead, and the button that helps. */
export function WhyItWaits({ id, url, waits }: { id: string; url: string; waits: readonly Wait[] }) {
  const { host } = splitUrl(url);
  const [first] = waits;
  if (!first) return null;
  return (
    <section>
      <h2>{isRunning(first) ? "In flight" : "Why it waits"}</h2>
      {waits.map((wait) => (
        <Reason key={wait.reason} wait={wait} />
      ))}
      <Gates first={first} waits={waits} />
      <div className="actions">
        <HelpFirst id={id} wait={first} />
        {isRunning(first) && first.attempt !== undefined && first.ending !== true && (
          <EndAttempt id={id} attempt={first.attempt} isHeld={first.reason === "acknowledging"} />
        )}
        {first.reason === "sending" && host !== "" && (
          <PageLink className="btn sm" to={`/hosts/${encodeURIComponent(host)}`}>
            Open host
          </PageLink>
        )}
      </div>
    </section>
  );
}

const isRunning = ({ reason }: Wait): boolean => reason === "sending" || reason === "acknowledging";

function Reason({ wait }: { wait: Wait }) {
  const { reason, behind = [], position, more, error } = wait;
  const now = useNow();
  const isSending = reason === "sending" && wait.ending !== true;
  const until = isSending || reason === "lease-over" || wait.ending ? undefined : wait.until;
  return (
    <div className="stack">
      <p title={wait.text}>
        <b>
          <Visible text={describeWait(wait, now)} />
        </b>
        {until !== undefined && (
          <>
            , at <Time at={until} as="clock" />
          </>
        )}
        {isSending && wait.since !== undefined && wait.until !== undefined && (
          <>
            {" "}
            since <Time at={wait.since} as="clock" />, timeout at <Time at={wait.until} as="clock" />
          </>
        )}
        .
      </p>
      {error !== undefined && (
        <p className="err">
          <Visible text={error} />
        </p>
      )}
      {position !== undefined && position > 0 && (
        <p>
          {formatCount(position)}
          {more ? " or more" : ""} {position === 1 ? "message is" : "messages are"} ahead.
        </p>
      )}
      {behind.length > 0 && (
        <ul className="ahead">
          {behind.map(({ messageId, text: about }) => (
            <li key={messageId}>
              <PageLink className="link id" to="/messages" search={{ open: messageId }}>
                {messageId}
              </PageLink>{" "}
              <span className="sub">
                <Visible text={withClocks(about.replace(`message ${messageId}`, ""), now)} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** The gates of a message, in their order. The first closed gate holds it. */
function Gates({ first, waits }: { first: Wait; waits: readonly Wait[] }) {
  const shutAt = gates.indexOf(gateOf[first.reason]);
  return (
    <ol className="gates" aria-label="Gates in their order">
      {gates.map((gate, at) => {
        const wait = waits.find(({ reason }) => gateOf[reason] === gate);
        // A message that is being sent has passed all gates.
        const isSent = wait?.reason === "sending";
        const isShut = wait !== undefined && !isSent;
        const kind = isShut ? "shut" : at > shutAt ? "later" : "";
        return (
          <li key={gate} className={kind}>
            <Glyph state={wait ? stateOfWait(wait.reason).state : at > shutAt ? "pending" : "delivered"} />
            <b>{gateNames[gate]}</b>
            <span>
              {isSent
                ? "sends it now"
                : isShut
                  ? at === shutAt
                    ? "holds it now"
                    : "closed"
                  : at > shutAt
                    ? "not reached"
                    : "open"}
            </span>
          </li>
        );
      })}
    </ol>
  );
}
