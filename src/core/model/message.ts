import type { AccountId, Brand, Bytes, HeaderList, MessageId, Millis } from "../values/basics.ts";
import type { Terms } from "./accountTerms.ts";

export type { AccountId, Brand, Bytes, HeaderList, IdKind, MessageId, Millis } from "../values/basics.ts";
export type NodeId = string;
export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

/** What is hidden from every answer of the API: the body, all headers, or some (canonical names). */
export type Redaction = { body: boolean; headers: boolean | readonly string[] };

/** How a message is sent and sent again. Null: the default of `core/values/limits.ts`. */
export type SendSettings = {
  method: Method;
  headers: HeaderList;
  retries: number | null;
  /** An expression in `retried`, in milliseconds: see `core/values/expression.ts`. */
  retryDelay: string | null;
  timeout: Millis | null;
  flowControl: FlowControl | null;
  callback: CallbackSettings | null;
  failureCallback: CallbackSettings | null;
};

export type CallbackSettings = { url: string; delay?: Millis; labels?: readonly string[] } & SendSettings;

/** The key that a message shares limits with others under, and the limits it brings. Null: not said, so none. */
export type FlowControl = { key: string; parallelism: number | null; rate: number | null; period: Millis | null };

/** A message to be made: what a publish asks for. */
export type MessageInput = SendSettings & {
  brand: Brand;
  /** Empty if it goes to a URL group: each endpoint gets a copy with its own, and with `query` behind it. */
  url: string;
  group: string | null;
  query?: string;
  /** The name of the endpoint in the group, if it has one. */
  endpoint: string | null;
  queue: string | null;
  /** The schedule that published it. */
  scheduleId: string | null;
  body: Bytes;
  /** Relative to the moment it is accepted. Null: none. */
  delay: Millis | null;
  /** Absolute; wins over `delay`. */
  notBefore: Millis | null;
  /** Hash of the id or of the content; null: none. */
  deduplication: string | null;
  /** For how long it holds. Null or not given: `spans.deduplication`. */
  deduplicationWindow?: Millis | null;
  /** For a call to a source that its signature identifies, the key of the signature and the hash of the topic. */
  signed?: { key: string; topic: string };
  labels: readonly string[];
  redaction: Redaction | null;
  callerIp: string | null;
  /** Whether the log keeps the response of a delivery that succeeded. */
  keepResponse?: boolean;
  /** Set on callbacks: what they tell of. */
  reportsOn: CallbackSubject | null;
  /** Of a letter that starts a workflow run, or goes on with one. */
  post?: RunPost;
};

/** The name of a workflow run in here. Its callers know it by a name of theirs, which several runs may have one after another. */
export type RunKey = string;

/** A step as the endpoint names it: `stepId` 0 is a plan, of the step `targetStep`. Whatever else it says stays in the body. */
export type StepHead = { stepId: number; stepName: string; stepType: string; concurrent: number; targetStep?: number };

/**
 * What a letter is to a workflow. `start`: its body is the initial payload, its settings hold for all messages of the
 * run; an empty `runId` is one to be made. `step`: its body goes on the history. `call`: a request to a third party, whose answer is a step.
 */
export type RunPost =
  | { kind: "start"; runId: string; url: string; features: RunFeatures; origin: RunOrigin; invoker: InvokerPost | null }
  | { kind: "step" | "call"; runId: string; head: StepHead | null };

/** `sdk`: posted by a client. `again`: posted by the endpoint itself, of a run that is active. `rest`: asked for without any of them. */
export type RunOrigin = "sdk" | "again" | "rest";

export type RunFeatures = {
  /** The endpoint can fetch a large history itself. */
  lazyFetch: boolean;
  /** Failure callbacks tell of the initial payload, not of the whole history. */
  initialBody: boolean;
  /** The first answer must show that it comes from a workflow. */
  detect: boolean;
  /** Settings of the start hold for all messages of the run. */
  captured: boolean;
};

/** The step of another run that waits for the end of this one, and what its result is sent with. */
export type InvokerPost = { runId: string; createdAt: Millis; url: string; headers: HeaderList; step: Readonly<Record<string, unknown>> };

/** What a message is to its run. `step`: it carries the history up to itself. `result`: what came of a call. */
export type RunPart = {
  run: RunKey;
  runId: string;
  createdAt: Millis;
  kind: "step" | "call" | "result" | "failure";
  /** Its place in the history. */
  stepKey: string;
  position: number;
  /** Bytes that are sent: its body is made of the history. 0 where the endpoint fetches that itself. */
  size: number;
  /** The first answer is looked at: whether it comes from a workflow, or from one that can be triggered without a client. */
  first?: "detect" | "rest";
};

/** What a callback tells of: the message, and for a failure callback its entry in the dead letter queue. */
export type CallbackSubject = { kind: "callback" | "failureCallback"; messageId: MessageId; dlqId: string | null };

/** A message as it was accepted. Written once, never changed, kept as long as its log or its dead letter. */
export type StoredMessage = Omit<MessageInput, "delay" | "notBefore" | "post" | "query" | "deduplicationWindow" | "signed"> & {
  account: AccountId;
  id: MessageId;
  createdAt: Millis;
  notBefore: Millis;
  /** The default is filled in. */
  retries: number;
  timeout: Millis;
  /** Sent at the moment of its birth, so the log begins with CREATED and ACTIVE. */
  startedAtOnce: boolean;
  run?: RunPart;
  damaged?: Damaged;
};

/** A row that was altered on the disk. It has no body, and nothing else that may have been altered: see `core/sending/damaged.ts`. */
export type Damaged = true;

/** A row without its body, for those who look at the rest of it only: a body may be large. */
export type WithoutBody<Row extends { body: Bytes }> = Omit<Row, "body">;

/**
 * Where an unfinished message stands. The row goes when the message is delivered, dead-lettered or cancelled.
 *
 * - `pending`: waits for `dueAt`, its send time.
 * - `active`: leased by a node, which is sending it; `dueAt` is the end of the lease. Past that it is simply due again.
 * - `cancelling`: cancelled while it was active, and finished for everybody but that node: the row keeps the lease, and the
 *   places of the request that is still under way, until this has an outcome, or the lease ends.
 * - `held`: due, but a gate is closed. The message is in the waitlist of that gate and has no due time: see `core/admission/gate.ts`.
 */
export type MessageState = {
  account: AccountId;
  id: MessageId;
  state: "pending" | "active" | "held" | "cancelling";
  dueAt: Millis | null;
  /** Attempts that ended, lost ones included. The number of the running attempt, and the fence of its lease. */
  attempts: number;
  /** How many of them ended without a report, because the lease ran out. */
  lostAttempts: number;
  /** Who sends it now; null: nobody does. `counted…`: it counts towards a limit of its account, in all or to its endpoint. */
  leasedBy: NodeId | null;
  counted?: true;
  countedToEndpoint?: true;
  /** What is sighted with all that is told of it: see `core/search/timeIndex.ts`. */
  timeKeys: TimeKeys;
  host: string;
  endpoint: string;
  /** Bytes of the body: what the message takes up while it is sent. */
  size: number;
  /** Whether an outcome must be told to someone, so that settling a plain success need not load the envelope. */
  reportsOutcome: boolean;
  queue: string | null;
  flowControlKey: string | null;
  /** The slot of a queue that it holds: its own, or on a callback that of the message it tells of. See `core/commands/queue.ts`. */
  slot: MessageId | null;
  /** The id of the gate in whose waitlist it is held: see `core/admission/gate.ts`. */
  waitlist: string | null;
  /** The run that it belongs to, and goes with. */
  run: RunKey | null;
  /** What it can be searched by: see `core/search/tags.ts`. */
  tags: readonly string[];
};

/** Whether anything is still to become of it. One that was cancelled is only here because of its places. */
export const isUnfinished = ({ state }: Pick<MessageState, "state">): boolean => state !== "cancelling";

/**
 * The limiter of a gate: its limits, and what it has counted. `id` is that of the gate, and `core/admission/gate.ts` says what each counter
 * is the sum of. A limit that is null does not hold.
 */
export type Limiter = {
  account: AccountId;
  id: string;
  createdAt: Millis;
  updatedAt: Millis;
  /** When its line is to be served, or when the row has been idle for too long. Null: something else must happen first. */
  dueAt: Millis | null;
  paused: boolean;
  parallelism: number | null;
  /** Of a queue: its slots. Of other gates: the leased messages that they count. */
  running: number;
  /** Messages in its waitlist. `waitingDownstream`: those that wait for a limit of the account behind it, and have reserved a place here. */
  waiting: number;
  waitingDownstream?: number;
  rate: number | null;
  period: Millis;
  windowStart: Millis;
  /** Deliveries begun in the window. */
  windowUsed: number;
  /** The latest time at which one of its messages was to be sent, as far as they were told of. It is not forgotten before. */
  lastDueAt: Millis;
  /** What people have set by hand. A queue that they have set up is pinned as well. */
  pinned: { parallelism: boolean; rate: boolean };
};

/**
 * A place in a queue, taken by a message until it and its callbacks are finished. `id` is that of the message. `queue` is
 * empty when the queue was deleted meanwhile.
 */
export type QueueSlot = { account: AccountId; id: MessageId; queue: string; holders: number };

/** A named set of endpoints. `headers`: settings for every request to it, as they were given. */
export type UrlGroup = {
  account: AccountId;
  name: string;
  createdAt: Millis;
  updatedAt: Millis;
  endpoints: readonly Endpoint[];
  headers: HeaderList;
  damaged?: Damaged;
};

export type Endpoint = { name: string | null; url: string };

/** A publish that is repeated. `dueAt`: when it fires next; null while it is paused. */
export type Schedule = {
  account: AccountId;
  id: string;
  cron: string;
  createdAt: Millis;
  dueAt: Millis | null;
  paused: boolean;
  lastAt: Millis | null;
  /** Those that the last firing made. */
  lastMessages: readonly MessageId[];
  /** Why the last firing was passed over, if it was. */
  passedOver?: string;
  messageInput: Omit<MessageInput, "body">;
  body: Bytes;
  damaged?: Damaged;
};

/** An intake URL of its own for one sender. What comes in there is published to `destination` with `headers` as settings. */
export type WebhookSource = {
  account: AccountId;
  id: string;
  name: string;
  /** SHA-256 in hex of the secret part of the URL. */
  secretHash: string;
  destination: string;
  headers: HeaderList;
  /** How calls are verified, as `api/webhooks` reads it. Null: not at all. */
  verification: unknown;
  /** Whether calls with the same event id of the sender are accepted once. */
  deduplicate: boolean;
  paused: boolean;
  createdAt: Millis;
  /** Calls that were rejected since the beginning, and how many of them were kept: the number of the next one. */
  rejected: number;
  kept: number;
  /** Until when those that were kept use up what may be kept: see `mayKeepRejection`. */
  keptUntil: Millis;
  /** To the minute. */
  acceptedAt: Millis | null;
};

/** A call to a source that was not accepted. `id`: `<source>/<place>`; the oldest place is used again. */
export type Rejection = {
  account: AccountId;
  id: string;
  time: Millis;
  /** Counted from the first one that its source kept. */
  number: number;
  /** Calls that were rejected between this and the one kept before it, and were not kept. */
  others: number;
  reason: string;
  method: string;
  headers: HeaderList;
  callerIp: string | null;
  /** Bytes of the body as it came; `body` is cut. */
  size: number;
  body: Bytes;
  /** The headers are cut. */
  cut?: true;
};

/** Due messages to one host for which no hand was free, in order of arrival. `dueAt`: when to look again at the latest. */
export type HostWaitlist = { account: AccountId; host: string; dueAt: Millis };

export type CallbackState = "CALLBACK_INPROGRESS" | "CALLBACK_SUCCESS" | "CALLBACK_FAIL" | "CALLBACK_CANCELED";
export type FailureCallbackInfo = {
  state: CallbackState;
  responseStatus?: number;
  responseBody?: string;
  responseHeaders?: HeaderList;
  digest?: string;
  /** As in `Outcome`; so it is in what is below. */
  cut?: true;
};

/** A message that failed for good, with its last response. `id` is the dlqId and begins with the time of failure. */
export type DeadLetter = {
  account: AccountId;
  id: string;
  messageId: MessageId;
  /** The line of the log that tells of the failure. Not given: the dead letter is damaged. */
  logId?: string;
  status: number | null;
  headers: HeaderList;
  body: Bytes;
  /** SHA-256 of the whole body, in hex, if only a part of it is kept. */
  digest?: string;
  cut?: true;
  error: string | null;
  retried: number;
  failureCallback: FailureCallbackInfo | null;
  /** The run that failed with it. */
  run?: { key: RunKey; runId: string; createdAt: Millis; url: string; failureUrl: string | null };
  /** Those of the message, its URL and its caller: see `core/search/tags.ts`. */
  tags: readonly string[];
  damaged?: Damaged;
};

export type LogState = "CREATED" | "ACTIVE" | "RETRY" | "ERROR" | "DELIVERED" | "FAILED" | "CANCEL_REQUESTED" | "CANCELLED";

/** What happened to a message at one moment: one or more states, in order. CREATED is told by the envelope itself. */
export type LogRow = {
  account: AccountId;
  /** A position: sorts by time. */
  id: string;
  messageId: MessageId;
  time: Millis;
  states: readonly LogState[];
  error: string | null;
  nextDueAt: Millis | null;
  status: number | null;
  headers: HeaderList;
  body: Bytes;
  /** Of a body that was cut, the SHA-256 of all of it, in hex. */
  digest?: string;
  cut?: true;
  dlqId: string | null;
  /** Those of the message: see `core/search/tags.ts`. */
  tags: readonly string[];
};

/** That a row of a list has something people search for, or that it was told of then: see `core/search/tags.ts` and `core/search/timeIndex.ts`. */
export type Tag = { account: AccountId; id: string };

/** What is sighted whenever something is told of a message: words, with spaces between them. */
export type TimeKeys = string;

export type SigningKeys = { current: string; next: string };

/** One tenant. Everything else belongs to one. */
export type Account = {
  id: AccountId;
  /** For people: the user name of the account. */
  name: string;
  password: string;
  token: string;
  /** SHA-256 of the token in hex: what a request is looked up by. */
  tokenHash: string;
  signingKeys: SigningKeys;
  /** When they were rotated last, and the key that was the current one until then. */
  lastRotation?: { at: Millis; key: string };
  createdAt: Millis;
} & Terms;

/** One call to a destination, leased to this node. `standardKeys`: where it is signed by Standard Webhooks, with these. */
export type Delivery = {
  message: StoredMessage;
  attempt: number;
  signingKey: string;
  standardKeys?: readonly string[];
  /** Why it must not be made. */
  unsendable?: string;
};

/** Names such a call: an attempt that a node says it has the lease of. */
export type LeaseRef = { account: AccountId; messageId: MessageId; attempt: number };

export type { DestinationResponse, Outcome } from "./attempt.ts";

export const noBytes: Bytes = new Uint8Array(0);
