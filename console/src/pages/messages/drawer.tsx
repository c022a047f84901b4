import { Link2, Terminal, X } from "lucide-react";
import type { RefObject } from "react";
import { useEffect, useRef, useState } from "react";
import type { Response } from "../../api/client.ts";
import { Trouble, toPath } from "../../api/client.ts";
import { pace, useRead } from "../../api/queries.ts";
import { Button, copyText, Id, Time } from "../../parts/basics.tsx";
import { Codes } from "../../parts/codes.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Headers, Payload } from "../../parts/payload.tsx";
import { Visible } from "../../parts/visible.tsx";
import { State } from "../../parts/state.tsx";
import { Failed, SkeletonRows } from "../../parts/trouble.tsx";
import { formatSpan, shortId, splitUrl } from "../../parts/words.ts";
import { focusAgain } from "../../parts/dialog.tsx";
import { isTyping } from "../../shell/shortcuts.tsx";
import { useToasts } from "../../shell/toasts.tsx";
import { Attempts } from "./attempts.tsx";
import { CancelMessage, RetryFailed, SendNow } from "./help.tsx";
import type { LogEntry } from "./states.ts";
import { logStates, stateOfWait } from "./states.ts";
import { WhyItWaits } from "./why.tsx";

type Message = Response<"GET /v2/messages/{messageId}">;

/** One message, next to its list: why it waits, its history, its body and its settings. */
export function MessageDrawer({ id, close }: { id: string; close(): void }) {
  const message = useRead(
    "GET /v2/messages/{messageId}",
    { params: { messageId: id } },
    { every: pace.run, keep: false },
  );
  const log = useRead(
    "GET /v2/logs",
    { query: { messageId: id, count: 100 } },
    { every: pace.run, keep: false },
  );
  const drawer = useDrawer(close);
  const entries = log.data?.events ?? [];
  const isGone = message.error instanceof Trouble && message.error.status === 404;
  const isWaiting = message.isPending || log.isPending;
  const shown = isGone || isWaiting ? undefined : message.data;
  const url = shown?.url ?? entries[0]?.url ?? "";
  return (
    <aside className="drawer" aria-label={`Message ${id}`} ref={drawer} tabIndex={-1}>
      <DrawerHead
        id={id}
        url={url}
        method={shown?.method ?? entries[0]?.method ?? ""}
        close={close}
        isWaiting={isWaiting}
      >
        <HeadState message={shown} last={entries[0]} />
        <span className="grow" />
        {shown?.waitingOn !== undefined && <CancelMessage id={id} />}
        <SendNow id={id} wait={shown?.waitingOn?.[0]} />
        {shown?.dlqId !== undefined && <RetryFailed dlqId={shown.dlqId} />}
      </DrawerHead>
      <div
        key={isWaiting ? "loading" : "ready"}
        className="scroll"
        tabIndex={0}
        aria-busy={isWaiting}
        role="region"
        aria-label="Details of the message"
      >
        {isWaiting && <SkeletonRows rows={5} />}
        {message.error && !isGone && (
          <Failed what="The message" error={message.error} retry={() => void message.refetch()} />
        )}
        {isGone && !isWaiting && <Ended entries={entries} isKnown={log.data !== undefined} />}
        {shown?.waitingOn && <WhyItWaits id={id} url={shown.url} waits={shown.waitingOn} />}
        {!isWaiting && entries.length > 0 && <Attempts entries={entries} />}
        {shown && <MessageParts message={shown} />}
      </div>
    </aside>
  );
}

/**
 * Moves the focus into a drawer, and back to where it was when the drawer closes. Escape closes it. Returns
 * the reference for its element.
 */
export function useDrawer(close: () => void): RefObject<HTMLElement | null> {
  const drawer = useRef<HTMLElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    drawer.current?.focus({ preventScroll: true });
    return () => focusAgain(before);
  }, []);
  useEffect(() => {
    const act = (event: KeyboardEvent): void => {
      if (event.key === "Escape" && !isTyping(event)) close();
    };
    document.addEventListener("keydown", act);
    return () => document.removeEventListener("keydown", act);
  });
  return drawer;
}

type HeadProps = {
  id: string;
  url: string;
  method: string;
  isWaiting: boolean;
  close(): void;
  children: React.ReactNode;
};

/** The head of a drawer: the id, the destination, and the actions. */
export function DrawerHead({ id, url, method, isWaiting, close, children }: HeadProps) {
  const { say } = useToasts();
  const { host, path } = splitUrl(url);
  return (
    <header>
      <div className="bar">
        <span className="pos mono">
          <Id id={id} isWhole />
        </span>
        <span className="spring" />
        <Button
          kind="ghost"
          isSmall
          icon={Link2}
          label="Copy the link"
          onClick={() => void copyText(location.href).then(() => say("The link is copied"))}
        />
        <Button kind="ghost" isSmall icon={X} label="Close (Esc)" onClick={close} />
      </div>
      {!isWaiting && (
        <>
          <div className="dest">
            <span className="method">{method}</span>{" "}
            <span className="host">
              <Visible text={host} />
            </span>
            <span className="path">
              <Visible text={path} />
            </span>
          </div>
          <div className="actions">{children}</div>
        </>
      )}
    </header>
  );
}

function HeadState({ message, last }: { message: Message | undefined; last: LogEntry | undefined }) {
  const { state, word } = message?.waitingOn
    ? stateOfWait(message.waitingOn[0]?.reason)
    : last
      ? logStates[last.state]
      : { state: "pending" as const, word: "…" };
  return <State state={state} word={word} isPill />;
}

const Ended = ({ entries, isKnown }: { entries: readonly LogEntry[]; isKnown: boolean }) =>
  !isKnown ? null : (
    <section>
      <h2>{entries.length > 0 ? "Only the log of this message is left" : "Message not found"}</h2>
      <p>
        {entries.length > 0
          ? "The message has expired."
          : "It may have expired, or it belongs to another account."}
      </p>
    </section>
  );

function MessageParts({ message }: { message: Message }) {
  const [isCode, setIsCode] = useState(false);
  return (
    <>
      <section>
        <h2>Body</h2>
        <Payload text={message.body} base64={message.bodyBase64} label="Body of the message" />
      </section>
      <section>
        <h2>Settings</h2>
        <Settings message={message} />
      </section>
      <section>
        <h2>Headers</h2>
        <Headers headers={message.header} />
      </section>
      <section>
        <h2>
          As code
          <span className="end">
            <Button isSmall icon={Terminal} aria-pressed={isCode} onClick={() => setIsCode(!isCode)}>
              Show
            </Button>
          </span>
        </h2>
        {isCode && (
          <Codes
            of={{
              method: "GET",
              path: toPath("GET /v2/messages/{messageId}", { params: { messageId: message.messageId } }),
            }}
          />
        )}
      </section>
    </>
  );
}

const deduplicatedBy = { id: "By its id", content: "By its content", source: "By the call to its source" };

/** How repeated messages are found, and which message they are answered with. */
const Deduplicated = ({
  of: { by, id, until, messageId },
}: {
  of: NonNullable<Message["deduplication"]>;
}) => (
  <>
    {id === undefined ? (
      deduplicatedBy[by]
    ) : (
      <code>
        <Visible text={id} />
      </code>
    )}
    {until !== undefined && (
      <>
        . A repeated message is dropped until <Time at={until} />
      </>
    )}
    {messageId !== undefined && (
      <>
        . A repeated message is dropped for{" "}
        <PageLink className="link" to="/messages" search={{ open: messageId }}>
          {shortId(messageId)}
        </PageLink>
      </>
    )}
  </>
);

type SettingsProps = {
  message: Omit<Message, "waitingOn" | "outcomes" | "state" | "dueAt" | "attempts" | "deduplication"> &
    Partial<Pick<Message, "deduplication">>;
};

/** The settings of a message or of a dead letter. */
export function Settings({ message }: SettingsProps) {
  const {
    queueName,
    flowControlKey,
    labels = [],
    maxRetries,
    retryDelayExpression,
    hideHeaders,
    callback,
    failureCallback,
  } = message;
  const rows: [string, React.ReactNode][] = [
    ["Created", <Time key="t" at={message.createdAt} />],
    ["Retries", `${maxRetries}, then the dead letter queue`],
  ];
  if (message.notBefore > message.createdAt)
    rows.push(["Delay", formatSpan(message.notBefore - message.createdAt)]);
  if (queueName !== undefined)
    rows.push([
      "Queue",
      <PageLink key="q" className="link" to={`/queues/${encodeURIComponent(queueName)}`}>
        {queueName}
      </PageLink>,
    ]);
  if (flowControlKey !== undefined) rows.push(["Key", <Visible key="k" text={flowControlKey} />]);
  if (message.topicName !== undefined) rows.push(["URL group", message.topicName]);
  if (message.scheduleId !== undefined) rows.push(["Schedule", message.scheduleId]);
  if (labels.length > 0)
    rows.push([
      "Labels",
      labels.map((label) => (
        <span key={label} className="chip">
          <Visible text={label} />
        </span>
      )),
    ]);
  if (retryDelayExpression !== undefined)
    rows.push([
      "Retry delay",
      <code key="r">
        <Visible text={retryDelayExpression} />
      </code>,
    ]);
  if (message.deduplication !== undefined)
    rows.push(["Deduplication", <Deduplicated key="d" of={message.deduplication} />]);
  if (hideHeaders) rows.push(["Headers", "only those of the message"]);
  if (callback !== undefined) rows.push(["Callback", <Visible key="c" text={callback} />]);
  if (failureCallback !== undefined)
    rows.push(["Failure callback", <Visible key="f" text={failureCallback} />]);
  if (message.replayOf !== undefined)
    rows.push([
      "Retry of",
      <PageLink key="o" className="link" to="/dead-letters" search={{ open: message.replayOf.dlqId }}>
        dead letter {message.replayOf.dlqId}
      </PageLink>,
    ]);
  if (message.callerIP !== undefined) rows.push(["Published from", message.callerIP]);
  return (
    <dl className="kv">
      {rows.map(([name, value]) => (
        <div key={name} className="pair">
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
