import type { AttemptTiming, CarriedHistory } from "./attempt.ts";
import type { AccountId, Brand, Bytes, HeaderList, MessageId, Millis, NodeId } from "../values/basics.ts";
import type { Terms } from "./accountTerms.ts";
import type { TraceContext } from "../values/traceContext.ts";
import type { ConsoleSession } from "./consoleSession.ts";
import type { RunKey, RunPart, RunPost } from "./runPost.ts";
import type { SendSettings } from "./sendSettings.ts";

export type {
  AccountId,
  Brand,
  Bytes,
  HeaderList,
  IdKind,
  MessageId,
  Millis,
  NodeId,
} from "../values/basics.ts";
export { noBytes } from "../values/basics.ts";
export type { CallbackSettings, FlowControl, Method, SendSettings } from "./sendSettings.ts";
export { noSendSettings, pickSendSettings } from "./sendSettings.ts";
export type { Endpoint, UrlGroup } from "./urlGroup.ts";
export type { InvokerPost, RunFeatures, RunKey, RunOrigin, RunPart, RunPost, StepHead } from "./runPost.ts";
/** The parts of a message that the API never shows: the body, and all or some headers (canonical names). */
export type Redaction = { body: boolean; headers: boolean | readonly string[] };

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
    "account" | "id" | "createdAt" | "notBefore" | "startedAtOnce" | "retries" | "timeout"
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
  if (input.keepResponse) message.keepResponse = true;
  if (input.hideHeaders) message.hideHeaders = true;
  if (input.trace !== undefined) message.trace = input.trace;
  if (input.replayOf !== undefined) message.replayOf = input.replayOf;
  return message;
}

/**
 * Marks a row that was altered on disk. The row has no body, and no other field that may have been altered:
 * see `core/sending/damaged.ts`.
 */
export type Damaged = true;

/** A row without its body. Bodies may be large, so they are loaded only if they are needed. */
export type WithoutBody<Row extends { body: Bytes }> = Omit<Row, "body">;

/**
 * The state of an unfinished message. The row is removed when the message is delivered, dead-lettered or
 * cancelled.
 *
 * - `pending`: the message waits for `dueAt`, its send time.
 * - `active`: a node has leased the message and is sending it. `dueAt` is the end of the lease; after that
 *   time the message is due again.
 * - `cancelling`, `settled`: the message was cancelled, or settled by a step of its run, while it was active.
 *   It counts as finished, but its request still runs. The row keeps the lease and the places at the gates
 *   until the request has an outcome or the lease ends.
 * - `held`: the message is due, but a gate is closed. It is in the waitlist of that gate and has no due time:
 *   see `core/admission/gate.ts`.
 */
export type MessageState = {
  account: AccountId;
  id: MessageId;
  state: "pending" | "active" | "held" | "cancelling" | "settled";
  dueAt: Millis | null;
  /**
   * The number of attempts that have ended, including lost ones. It is also the number of the running
   * attempt. A report with another number does not belong to the current lease and changes nothing.
   */
  attempts: number;
  /** The number of these attempts that ended without a report, because the lease expired. */
  lostAttempts: number;
  /**
   * The node that is sending the message; null if none is. `counted` and `countedToEndpoint` record that the
   * message counts towards the limit of its account: in total, or for its endpoint.
   */
  leasedBy: NodeId | null;
  counted?: true;
  countedToEndpoint?: true;
  /**
   * The keys of the time index for everything that is recorded about the message: see
   * `core/search/timeIndex.ts`.
   */
  timeKeys: TimeKeys;
  host: string;
  endpoint: string;
  /** The number of body bytes that the message occupies in memory while it is sent. */
  size: number;
  /**
   * Whether the outcome must be reported. If not, a success can be settled without loading the stored
   * message.
   */
  reportsOutcome: boolean;
  queue: string | null;
  flowControlKey: string | null;
  /**
   * The queue slot that the message holds. A callback shares the slot of the message that it reports on. See
   * `core/commands/queue.ts`.
   */
  slot: MessageId | null;
  /** The id of the gate in whose waitlist the message is held: see `core/admission/gate.ts`. */
  waitlist: string | null;
  /** The run that the message belongs to. The message is dropped when the run ends. */
  run: RunKey | null;
  /** The tags by which the message can be searched: see `core/search/tags.ts`. */
  tags: readonly string[];
};

/**
 * Reports whether a message is unfinished. A cancelled or settled message whose request still runs counts as
 * finished; its row only keeps its places at the gates.
 */
export const isUnfinished = ({ state }: Pick<MessageState, "state">): boolean =>
  state !== "cancelling" && state !== "settled";

/** A publish that is repeated. `dueAt` is the time of the next firing; null while the schedule is paused. */
export type Schedule = {
  account: AccountId;
  id: string;
  cron: string;
  createdAt: Millis;
  dueAt: Millis | null;
  paused: boolean;
  lastAt: Millis | null;
  /** The messages that the last firing created. */
  lastMessages: readonly MessageId[];
  /** Why the last firing was skipped. Absent if it was not skipped. */
  passedOver?: string;
  messageInput: Omit<MessageInput, "body">;
  body: Bytes;
  damaged?: Damaged;
};

/** The states that the log of a message records. */
export type LogState =
  | "CREATED"
  | "ACTIVE"
  | "RETRY"
  | "ERROR"
  | "DELIVERED"
  | "FAILED"
  | "CANCEL_REQUESTED"
  | "CANCELLED";

/**
 * An event in the life of a message: one or more states, in order, at one moment. The stored message implies
 * CREATED. `status` is null if there was no response, or if it was not known yet: see `isSettledByStep`.
 */
export type LogRow = {
  account: AccountId;
  /** A position, which sorts by time. */
  id: string;
  messageId: MessageId;
  time: Millis;
  states: readonly LogState[];
  error: string | null;
  nextDueAt: Millis | null;
  status: number | null;
  headers: HeaderList;
  body: Bytes;
  /** SHA-256 of the whole body in hex. Present if the body was cut. */
  digest?: string;
  cut?: true;
  dlqId: string | null;
  /** The attempt that ended. Absent if none did, or if no request was attempted. */
  attempt?: LoggedAttempt;
  /** The host that the message was delivered to. Present if a step settled it, before its attempt ended. */
  settledHost?: string;
  /** The tags of the message: see `core/search/tags.ts`. */
  tags: readonly string[];
};

/** An attempt as the log keeps it: its times, the node that made it, and the host that it was made to. */
export type LoggedAttempt = AttemptTiming & { node: NodeId; host: string };

/**
 * An entry of a search index: either a row has a property by which lists are searched, or a URL or a similar
 * key occurred in a period of time. See `core/search/tags.ts` and `core/search/timeIndex.ts`.
 */
export type Tag = { account: AccountId; id: string };

/** The keys of the time index for everything that is recorded about a message: words separated by spaces. */
export type TimeKeys = string;

/** The keys with which deliveries are signed. After a rotation, `next` becomes `current`. */
export type SigningKeys = { current: string; next: string };

/** One tenant. All other rows belong to an account. */
export type Account = {
  id: AccountId;
  /** The user name of the account, for people. */
  name: string;
  password: string;
  token: string;
  /** SHA-256 of the token in hex. The account of a request is found by it. */
  tokenHash: string;
  signingKeys: SigningKeys;
  /** When the signing keys were last rotated, and the key that was current until then. */
  lastRotation?: { at: Millis; key: string };
  /** Open sessions of the web console, the oldest first. They end when the token is replaced. */
  sessions?: readonly ConsoleSession[];
  createdAt: Millis;
} & Terms;

/** One call to a destination, leased to this node. */
export type Delivery = {
  message: StoredMessage;
  attempt: number;
  /** The key of the signature as a JWT. Null if the call has no such signature. */
  signingKey: string | null;
  /** Present if the call is also signed by the rules of Standard Webhooks. */
  standardKeys?: readonly string[];
  /** Sent instead of the body of the message. */
  history?: CarriedHistory;
  /** Why the call must not be made. Absent if it may be made. */
  unsendable?: string;
  /** Present if the outcome must be stored at once, because something waits for it. */
  settlesAtOnce?: true;
};

/** Names a delivery: the attempt whose lease a node claims to hold. */
export type LeaseRef = { account: AccountId; messageId: MessageId; attempt: number };

export type { AttemptTiming, CarriedHistory, DestinationResponse, Outcome } from "./attempt.ts";
