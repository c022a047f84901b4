import { Bell, Hourglass, Moon, Webhook, Workflow } from "lucide-react";
import type { ReactNode } from "react";
import type { Response } from "../../api/client.ts";
import { Icon, Time, useNow } from "../../parts/basics.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatMany, formatRelative, withClocks } from "../../parts/words.ts";
import { NotifyButton } from "../inputs/notify.tsx";
import { describeWait } from "../messages/describe.ts";
import { HelpFirst } from "../messages/help.tsx";

export type RunStatus = Response<"GET /v2/workflows/runs/{workflowRunId}/status">;
type RunWait = NonNullable<RunStatus["waitingOn"]>[number];

const icons = {
  event: Bell,
  webhook: Webhook,
  run: Workflow,
  call: Hourglass,
  sleep: Moon,
  endpoint: Hourglass,
  nothing: Hourglass,
};

/** The reasons why an active run waits: one for each step that has not ended, with the button that helps. */
export function RunWaits({ status }: { status: RunStatus }) {
  const { waitingOn = [], kept = [], more } = status;
  if (waitingOn.length === 0) return null;
  return (
    <section className="callout info waits" aria-label="What this run waits for">
      <ul>
        {waitingOn.map((wait, at) => (
          <li key={at}>
            <Icon of={icons[wait.reason]} />
            <div>
              <p>
                <b>
                  <What wait={wait} />
                </b>
              </p>
              <p className="sub">
                <When wait={wait} />
              </p>
            </div>
            <div className="actions">
              <Help wait={wait} />
            </div>
          </li>
        ))}
      </ul>
      {more && <p className="sub">It waits for more than these.</p>}
      {kept.map(({ eventId, kind, count }) => (
        <p key={`${kind} ${eventId}`} className="sub">
          {formatMany(count, kind === "event" ? "event" : "call")} <Visible text={eventId} /> arrived before a
          step waited for it.
        </p>
      ))}
    </section>
  );
}

function What({ wait }: { wait: RunWait }): ReactNode {
  const now = useNow();
  const { reason, stepName, eventId = "", workflowRunId = "", until, waitingOn = [] } = wait;
  const [first] = waitingOn;
  switch (reason) {
    case "event":
      return (
        <>
          Waits for event <Visible text={eventId} />
        </>
      );
    case "webhook":
      return (
        <>
          Waits for a call to webhook <Visible text={eventId} />
        </>
      );
    case "run":
      return (
        <>
          Waits for run{" "}
          <PageLink className="link" to={`/runs/${encodeURIComponent(workflowRunId)}`}>
            <Visible text={workflowRunId} />
          </PageLink>
        </>
      );
    case "sleep":
      return <>Sleeps{until !== undefined && <> until {<Time at={until} as="clock" />}</>}</>;
    case "nothing":
      return "Nothing is in flight";
    case "call":
    case "endpoint":
      return (
        <>
          {reason === "call" ? <Visible text={stepName ?? "A step"} /> : "The call of its endpoint"}:{" "}
          <Visible text={first ? describeWait(first, now) : "in progress"} />
        </>
      );
  }
}

const day = 24 * 60 * 60 * 1_000;

/** The step, and the time since and until. */
function When({ wait: { reason, text, stepName, since, until } }: { wait: RunWait }) {
  const now = useNow();
  if (reason === "nothing") return <Visible text={withClocks(text, now)} />;
  return (
    <>
      {stepName !== undefined && reason !== "call" && (
        <>
          step “<Visible text={stepName} />
          ”,{" "}
        </>
      )}
      {since !== undefined && (
        <>
          since <Time at={since} as="clock" />
        </>
      )}
      {until !== undefined && (
        <>
          , until <Time at={until} as="clock" />
          {until - now < day && ` (${formatRelative(until, now)})`}
        </>
      )}
    </>
  );
}

function Help({ wait: { reason, eventId, messageId, waitingOn = [] } }: { wait: RunWait }) {
  if (reason === "event" && eventId !== undefined) return <NotifyButton eventId={eventId} />;
  if (messageId === undefined) return null;
  return (
    <>
      <HelpFirst id={messageId} wait={waitingOn[0]} isSmall />
      <PageLink className="btn sm" to="/messages" search={{ open: messageId }}>
        Message
      </PageLink>
    </>
  );
}
