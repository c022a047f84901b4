import type { RunPart, RunPost } from "./runPost.ts";
import type { Redaction, SendSettings } from "./sendSettings.ts";
import type { AccountId, Brand, Bytes, MessageId, Millis } from "../values/basics.ts";
import type { TraceContext } from "../values/traceContext.ts";

/** A message as requested, for example by a publish. */
export type MessageInput = SendSettings & {
  brand: Brand;
  /**
   * Empty if the message goes to a URL group. Each endpoint then gets a copy with its own URL and `query`
   * appended.
   */
  url: string;
  group: string | null;
  query?: string;
  /** The name of the endpoint in the group; null if it has none. */
  endpoint: string | null;
  queue: string | null;
  /** The schedule that published the message. */
  scheduleId: string | null;
  body: Bytes;
  /** The delay from the moment of acceptance. Null means no delay. */
  delay: Millis | null;
  /** An absolute time. It takes precedence over `delay`. */
  notBefore: Millis | null;
  /** A hash of the deduplication id or of the content; null if the message is not deduplicated. */
  deduplication: string | null;
  /** The deduplication id as it was sent. Absent if the message has none. */
  deduplicationId?: string;
  /** How long the deduplication key is held. Null or absent means `spans.deduplication`. */
  deduplicationWindow?: Millis | null;
  /**
   * The key of the signature and the hash of the topic. Present for a call to a source if the call is
   * identified by its signature.
   */
  signed?: { key: string; topic: string };
  labels: readonly string[];
  redaction: Redaction | null;
  callerIp: string | null;
  /** Whether the log keeps the response of a successful delivery. */
  keepResponse?: boolean;
  /** How long the receiver may take to report the outcome of an attempt. Absent: it may only answer. */
  ackTimeout?: Millis;
  /** Whether the destination receives none of the headers that this server adds. */
  hideHeaders?: boolean;
  /** The trace that the message belongs to. */
  trace?: TraceContext;
  /** Set on callbacks: the message whose outcome they report. */
  reportsOn: CallbackSubject | null;
  /** The dead letter that the message sends again with changes, and the message of that dead letter. */
  replayOf?: { messageId: MessageId; dlqId: string };
  /** Present on a message that starts a workflow run or continues one. */
  post?: RunPost;
};

/** The fields of a `MessageInput` for which nothing is set, except the send settings. */
export const noMessageSettings = {
  group: null,
  endpoint: null,
  queue: null,
  scheduleId: null,
  delay: null,
  notBefore: null,
  deduplication: null,
  labels: [],
  redaction: null,
  callerIp: null,
  reportsOn: null,
} as const satisfies Omit<MessageInput, keyof SendSettings | "brand" | "url" | "body">;

/** The message that a callback reports on and, for a failure callback, its dead letter. */
export type CallbackSubject = {
  kind: "callback" | "failureCallback";
  messageId: MessageId;
  dlqId: string | null;
};

/**
 * A message as it was accepted. It is written once and never changed, and kept as long as its log or its dead
 * letter.
 */
export type StoredMessage = Omit<
  MessageInput,
  "delay" | "notBefore" | "post" | "query" | "deduplicationWindow" | "signed"
> & {
  account: AccountId;
  id: MessageId;
  createdAt: Millis;
  notBefore: Millis;
  /** The number of retries. The default is already applied, as it is to `timeout`. */
  retries: number;
  timeout: Millis;
  /** The key of the tokens of its attempts. Present if `ackTimeout` is. */
  ackKey?: string;
  /** The message was sent when it was accepted, so its log begins with CREATED and ACTIVE. */
  startedAtOnce: boolean;
  run?: RunPart;
  damaged?: Damaged;
};

/** A request for exactly one message, which may belong to a run. */
export type SingleInput = Omit<MessageInput, "post"> & { run?: RunPart };

/**
 * Returns a message as it is stored. Every field is listed by name: V8 turns an object that is spread and
 * extended into a hash table, which is slow for all code that reads it.
 */
export function makeStoredMessage(
  input: SingleInput,
  created: Pick<
    StoredMessage,
    | "account"
    | "id"
    | "createdAt"
    | "notBefore"
    | "startedAtOnce"
    | "retries"
    | "timeout"
    | "ackTimeout"
    | "ackKey"
  >,
): StoredMessage {
  const message: StoredMessage = {
    account: created.account,
    id: created.id,
    brand: input.brand,
    url: input.url,
    method: input.method,
    headers: input.headers,
    body: input.body,
    retries: created.retries,
    retryDelay: input.retryDelay,
    timeout: created.timeout,
    flowControl: input.flowControl,
    callback: input.callback,
    failureCallback: input.failureCallback,
    group: input.group,
    endpoint: input.endpoint,
    queue: input.queue,
    scheduleId: input.scheduleId,
    deduplication: input.deduplication,
    labels: input.labels,
    redaction: input.redaction,
    callerIp: input.callerIp,
    reportsOn: input.reportsOn,
    createdAt: created.createdAt,
    notBefore: created.notBefore,
    startedAtOnce: created.startedAtOnce,
  };
  if (input.run !== undefined) message.run = input.run;
  if (input.deduplicationId !== undefined) message.deduplicationId = input.deduplicationId;
  if (input.keepResponse) message.keepResponse = true;
  if (input.hideHeaders) message.hideHeaders = true;
  if (input.trace !== undefined) message.trace = input.trace;
  if (created.ackTimeout !== undefined) message.ackTimeout = created.ackTimeout;
  if (created.ackKey !== undefined) message.ackKey = created.ackKey;
  if (input.replayOf !== undefined) message.replayOf = input.replayOf;
  return message;
}

/**
 * Marks a row that was altered on disk. The row has no body, and no other field that may have been altered:
 * see `engine/core/model/damagedRows.ts`.
 */
export type Damaged = true;

/** A row without its body. Bodies may be large, so they are loaded only if they are needed. */
export type WithoutBody<Row extends { body: Bytes }> = Omit<Row, "body">;
