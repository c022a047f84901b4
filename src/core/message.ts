/** Unix time, or a length of time, in milliseconds. Names tell which: `dueAt`, `createdAt`; `timeout`, `delay`. */
export type Millis = number;
export type Bytes = Uint8Array;
export type AccountId = string;
export type MessageId = string;
export type NodeId = string;
/** `msg`: a message. `log`, `dlq`: positions that sort by time. `sig`: a signing key. `nod`: a node. `jwt`: a signature. */
export type IdKind = "msg" | "log" | "dlq" | "sig" | "nod" | "jwt";

export type Brand = "svc" | "upstash";
export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
/** Names in canonical form (`Content-Type`), in order, repeated where they came repeated. */
export type HeaderList = readonly (readonly [name: string, value: string])[];

/** What is hidden from every answer of the API: the body, all headers, or some (canonical names). */
export type Redaction = { body: boolean; headers: boolean | readonly string[] };

/** How a message is sent and sent again. Null: the default of `core/limits.ts`. */
export type SendSettings = {
  method: Method;
  headers: HeaderList;
  retries: number | null;
  /** An expression in `retried`, in milliseconds: see `core/expression.ts`. */
  retryDelay: string | null;
  timeout: Millis | null;
  callback: CallbackSettings | null;
  failureCallback: CallbackSettings | null;
};

export type CallbackSettings = { url: string } & SendSettings;

/** A message to be made: what a publish asks for. */
export type Letter = SendSettings & {
  brand: Brand;
  url: string;
  body: Bytes;
  /** Relative to the moment it is accepted. Null: none. */
  delay: Millis | null;
  /** Absolute; wins over `delay`. */
  notBefore: Millis | null;
  /** Hash of the id or of the content; null: none. */
  deduplication: string | null;
  labels: readonly string[];
  redaction: Redaction | null;
  callerIp: string | null;
  /** Set on callbacks: what they tell of. */
  tells: Tells | null;
};

/** What a callback tells of: the message, and for a failure callback its entry in the dead letter queue. */
export type Tells = { kind: "callback" | "failureCallback"; messageId: MessageId; dlqId: string | null };

/** A message as it was accepted. Written once, never changed, kept as long as its log or its dead letter. */
export type Envelope = Omit<Letter, "delay" | "notBefore"> & {
  account: AccountId;
  id: MessageId;
  createdAt: Millis;
  notBefore: Millis;
  /** The default is filled in. */
  retries: number;
  timeout: Millis;
  /** Sent at the moment of its birth, so the log begins with CREATED and ACTIVE. */
  startedAtOnce: boolean;
};

/** A row without its body, for those who look at the rest of it only: a body may be large. */
export type Outline<Row extends { body: Bytes }> = Omit<Row, "body">;

/**
 * Where an unfinished message stands. The row goes when the message is delivered, dead-lettered or cancelled.
 *
 * - `pending`: waits for `dueAt`, its send time.
 * - `active`: leased by a node, which is sending it; `dueAt` is the end of the lease. Past that it is simply due again.
 * - `held`: due, but its destination has no free hand; stands in the host's line and has no due time.
 */
export type MessageState = {
  account: AccountId;
  id: MessageId;
  state: "pending" | "active" | "held";
  dueAt: Millis | null;
  /** Attempts that ended, lost ones included. The number of the running attempt, and the fence of its lease. */
  attempts: number;
  /** How many of them ended without a report, because the lease ran out. */
  lost: number;
  leasedBy: NodeId | null;
  host: string;
  /** Bytes of the body: what the message takes up while it is sent. */
  size: number;
  /** Whether an outcome must be told to someone, so that settling a plain success need not load the envelope. */
  tells: boolean;
};

/** Same key within the window: one message. */
export type Deduplication = { account: AccountId; key: string; messageId: MessageId; expiresAt: Millis };

/** Due messages to one host for which no hand was free, in order of arrival. `dueAt`: when to look again at the latest. */
export type Line = { account: AccountId; host: string; dueAt: Millis };

export type CallbackState = "CALLBACK_INPROGRESS" | "CALLBACK_SUCCESS" | "CALLBACK_FAIL" | "CALLBACK_CANCELED";
export type FailureCallbackInfo = { state: CallbackState; responseStatus?: number; responseBody?: string; responseHeaders?: HeaderList };

/** A message that failed for good, with its last response. `id` is the dlqId and begins with the time of failure. */
export type DeadLetter = {
  account: AccountId;
  id: string;
  messageId: MessageId;
  status: number | null;
  headers: HeaderList;
  body: Bytes;
  error: string | null;
  retried: number;
  failureCallback: FailureCallbackInfo | null;
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
  dlqId: string | null;
};

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
  createdAt: Millis;
};

/** One call to a destination, leased to this node. */
export type Delivery = { message: Envelope; attempt: number; signingKey: string };

/** What came of it. No answer is an outcome too: `status` is null and `error` says why. */
export type Outcome = {
  account: AccountId;
  messageId: MessageId;
  host: string;
  attempt: number;
  status: number | null;
  headers: HeaderList;
  body: Bytes;
  error: string | null;
  /** From the first byte sent to the last received. */
  took: Millis;
};

/** The last answer of a destination, or why there was none. */
export type Answer = Pick<Outcome, "status" | "headers" | "body" | "error">;

/** Host and port of a destination, in lower case: what hands are shared out by. */
export const hostOf = (url: string): string => new URL(url).host;

/** Canonical form of a header name: `x-request-id` → `X-Request-Id`. */
export const canonicalName = (name: string): string => name.toLowerCase().replace(/(^|-)[a-z]/g, (letter) => letter.toUpperCase());

export const headerValue = (headers: HeaderList, name: string): string | undefined => headers.find(([key]) => key === name)?.[1];

export const noBytes: Bytes = new Uint8Array(0);
