import type { HeaderList, Millis } from "../values/basics.ts";

/** The HTTP methods that a message can be sent with. */
export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

/** The parts of a message that the API never shows: the body, and all or some headers (canonical names). */
export type Redaction = { body: boolean; headers: boolean | readonly string[] };

/** How a message is sent and retried. Null means the default of `engine/core/values/limits.ts`. */
export type SendSettings = {
  method: Method;
  headers: HeaderList;
  retries: number | null;
  /** An expression in `retried` that gives milliseconds: see `engine/core/values/expression.ts`. */
  retryDelay: string | null;
  timeout: Millis | null;
  flowControl: FlowControl | null;
  callback: CallbackSettings | null;
  failureCallback: CallbackSettings | null;
};

/** The send settings of a request for which nothing is set. */
export const noSendSettings: SendSettings = {
  method: "POST",
  headers: [],
  retries: null,
  retryDelay: null,
  timeout: null,
  flowControl: null,
  callback: null,
  failureCallback: null,
};

/** Returns the send settings of a message, a callback or a run, without its other fields. */
export const pickSendSettings = (from: SendSettings): SendSettings => ({
  method: from.method,
  headers: from.headers,
  retries: from.retries,
  retryDelay: from.retryDelay,
  timeout: from.timeout,
  flowControl: from.flowControl,
  callback: from.callback,
  failureCallback: from.failureCallback,
});

/** Where and how a callback is sent. */
export type CallbackSettings = { url: string; delay?: Millis; labels?: readonly string[] } & SendSettings;

/**
 * The key under which messages share limits, and the limits that this message sets for the key. Null: the
 * message does not set this limit.
 */
export type FlowControl = {
  key: string;
  parallelism: number | null;
  rate: number | null;
  period: Millis | null;
};
