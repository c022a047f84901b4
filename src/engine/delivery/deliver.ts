import { hash } from "node:crypto";
import { logBodyBytes } from "../core/values/limits.ts";
import { canonicalName } from "../core/values/headers.ts";
import type { LongWork } from "../core/node/longWork.ts";
import { leastProgress } from "../core/node/responseRoom.ts";
import { noBytes } from "../core/values/basics.ts";
import { parseUrl, type ParsedUrl } from "../core/values/url.ts";
import type { AccountId, HeaderList, IdKind, Millis } from "../core/values/basics.ts";
import type { Delivery } from "../core/model/delivery.ts";
import type { OpeningTiming, Outcome } from "../core/model/attempt.ts";
import { slowAttempt } from "../core/model/attempt.ts";
import type { ResponseRoom } from "./http/bodyBytes.ts";
import { unlimitedRoom } from "./http/bodyBytes.ts";
import { alarm, type Clock } from "../clock/clock.ts";
import { composeRequest } from "./deliveryRequest.ts";
import { abortedError, toErrorText } from "./deliveryError.ts";
import type { RequestCaller, HttpConnection, HttpRequest } from "./http/connection.ts";
import { ConnectionPool } from "./http/pool.ts";
import type { Egress } from "./http/egress.ts";
import { ResponseBody } from "./http/responseBody.ts";
import { isSuccessStatus } from "../core/values/status.ts";

/**
 * A call to a destination. `outcome` never rejects: a failure is an outcome too. `abort` ends the call if it
 * has not ended.
 */
export type DeliveryCall = { outcome: Promise<Outcome>; abort(): void };

/**
 * Starts one call to a destination. The response takes its memory from `room`. Without `room`, its memory is
 * not limited.
 */
export type Deliver = (delivery: Delivery, room?: ResponseRoom) => DeliveryCall;

/** The options that all calls of a node share. */
export type DeliverOptions = {
  egress: Egress;
  clock: Clock;
  limits: {
    /**
     * The maximum size of a response, in bytes. A longer response is cut and the rest is not read, unless a
     * callback reports more of it. Dead letters keep this many bytes.
     */
    responseBytes: number;
    /** The largest body of a message, in bytes. */
    maxBody: number;
    connectTimeout: Millis;
    /**
     * The maximum number of connections to one origin. It should equal the delivery capacity, because the
     * timeout of a call includes the time that the call waits for a connection.
     */
    connectionsPerOrigin: number;
    /** The maximum number of sockets to all destinations. Absent: no limit. */
    sockets?: number;
  };
  region: string;
  longWork: LongWork;
  newId(kind: IdKind): string;
};

/** Returns a `deliver` function with its own connections. `close` aborts all running calls. */
export function createDeliver(options: DeliverOptions): { deliver: Deliver; close(): Promise<void> } {
  const { egress, limits } = options;
  const connections = new ConnectionPool({
    connector: egress.connector(limits.connectTimeout),
    perOrigin: limits.connectionsPerOrigin,
    longWork: options.longWork,
    ...(limits.sockets !== undefined && { maxSockets: limits.sockets }),
  });
  const deliver: Deliver = (delivery, room = unlimitedRoom) => {
    const { promise: outcome, resolve } = Promise.withResolvers<Outcome>();
    const url = parseUrl(delivery.message.url);
    const attempt = new DeliveryAttempt({ delivery, host: url?.host ?? "", options, resolve, room });
    // The responses to publishers are already queued and are sent first, because composing and signing a
    // request takes longer than sending a response.
    process.nextTick(() => attempt.begin(connections, url));
    return { outcome, abort: () => attempt.end(abortedError) };
  };
  return { deliver, close: async () => connections.close() };
}

const maxHeaders = 100;

/** One attempt to deliver a message: collects what the connection reports and turns it into one outcome. */
class DeliveryAttempt implements RequestCaller {
  request: HttpRequest = noRequest;
  readonly account: AccountId;
  readonly #delivery: Delivery;
  readonly #options: DeliverOptions;
  readonly #resolve: (outcome: Outcome) => void;
  readonly #room: ResponseRoom;
  readonly #host: string;
  readonly #beganAt: Millis;
  /** When the request was sent for the first time; it may be resent within the attempt. */
  #sentAt: Millis | null = null;
  #respondedAt: Millis | null = null;
  /** How long it took to open the connection. Null if an open one was used. */
  #opening: OpeningTiming | null = null;
  #cancelTimeout: (() => void) | null = null;
  #cancelRequest: (() => void) | null = null;
  #connection: HttpConnection | null = null;
  #hasEnded = false;
  #status: number | null = null;
  #headers: HeaderList = [];
  #body: ResponseBody | null = null;
  /** Bytes of a body that is not kept. */
  #discardedBytes = 0;
  /** Whether some header fields, or a part of the body, were dropped. */
  #isCut = false;
  /** Whether the connection had carried an earlier request, and ended without a response. */
  #isUnanswered = false;

  constructor({ delivery, host, options, resolve, room }: AttemptOptions) {
    this.#delivery = delivery;
    this.account = delivery.message.account;
    this.#host = host;
    this.#options = options;
    this.#resolve = resolve;
    this.#room = room;
    this.#beganAt = options.clock.now();
  }

  /**
   * Sends the request and starts its timeout, which covers name resolution, the connection, the request and
   * the whole response.
   */
  begin(connections: ConnectionPool, url: ParsedUrl | null): void {
    if (this.#hasEnded) return;
    try {
      const { request, to } = composeRequest(this.#delivery, url, this.#options);
      this.request = request;
      const { timeout } = this.#delivery.message;
      this.#cancelTimeout = alarm(timeout, () => this.#expire(timeout));
      this.#cancelRequest = connections.send(to, this);
    } catch (error) {
      this.end(toErrorText(error));
    }
  }

  #expire(timeout: Millis): void {
    const reason = this.#body?.isWaiting ? " while the server had no memory for more of the response" : "";
    this.#endEarly(`timed out after ${formatTime(timeout)}${reason}`);
  }

  /**
   * Ends the attempt before its response is complete. If the response is already longer than what is kept,
   * it is cut and the attempt counts as complete. Otherwise the attempt fails.
   */
  #endEarly(error: string): void {
    const isEnough =
      this.#body !== null && this.#body.size > this.#options.limits.responseBytes && !this.#isCall;
    this.#isCut ||= isEnough;
    this.end(isEnough ? null : error);
  }

  onSent(connection: HttpConnection): void {
    this.#connection = connection;
    if (this.#sentAt !== null) return;
    this.#sentAt = this.#options.clock.now();
    this.#opening = connection.opening;
  }

  onResponse(status: number, fields: () => HeaderList, length: number | null): void {
    if (this.#hasEnded) return;
    this.#respondedAt = this.#options.clock.now();
    this.#status = status;
    if (!isResponseNeeded(this.#delivery, status)) return;
    const allFields = fields();
    this.#headers = toHeaderList(allFields);
    this.#isCut = allFields.length > maxHeaders;
    const maxBytes = this.#maxBytes;
    if (this.#isCall && length !== null && length > maxBytes) return this.#endTooLarge();
    this.#body = new ResponseBody({
      room: this.#room,
      length,
      keptBytes: this.#isCall ? maxBytes : this.#options.limits.responseBytes,
      maxBytes,
      pause: () => this.#connection?.pause(),
      resume: () => this.#connection?.resume(),
      stall: () => this.#endEarly(tooSlowError),
    });
  }

  onBody(bytes: Buffer): void {
    if (this.#hasEnded) return;
    const isWhole = this.#body
      ? this.#body.add(bytes) === bytes.length
      : (this.#discardedBytes += bytes.length) <= this.#maxBytes;
    if (isWhole) return;
    if (this.#isCall) return this.#endTooLarge();
    this.#isCut = this.#body !== null;
    this.end(null);
  }

  /**
   * Fails the call because its response is too large. A cut response would not do: the workflow step would
   * continue with a part of it and not notice.
   */
  #endTooLarge(): void {
    this.end(`the response exceeds the limit of ${formatMebibytes(this.#maxBytes)}`);
  }

  get #isCall(): boolean {
    return this.#delivery.message.run?.kind === "call";
  }

  /**
   * The maximum size of the body, in bytes. The response of a third party becomes a step of a workflow, and
   * may be as large as a message. If a callback reports the response, it contains the response in base64, so
   * its limit is three quarters of the size of a message.
   */
  get #maxBytes(): number {
    const { responseBytes, maxBody } = this.#options.limits;
    if (this.#isCall) return Math.max(responseBytes, maxBody);
    return isReportedByCallback(this.#delivery, this.#status)
      ? Math.max(responseBytes, Math.floor(maxBody / 4) * 3)
      : responseBytes;
  }

  onEnd(): void {
    this.#connection = null;
    this.end(null);
  }

  /**
   * A call to the endpoint of a run carries the history. The endpoint may have posted a step in the request
   * without a response, so the store sends the message again, with the history as it is then.
   */
  mayResend(): boolean {
    const kind = this.#delivery.message.run?.kind;
    this.#isUnanswered = kind === "step" || kind === "result";
    return !this.#isUnanswered;
  }

  onFailure(error: unknown): void {
    this.#connection = null;
    this.end(toErrorText(error));
  }

  /**
   * Ends the call with what has been received, or with an error. Later calls have no effect. Closes the
   * connection unless its request is complete.
   */
  end(error: string | null): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#cancelTimeout?.();
    this.#resolve(this.#outcome(error));
    this.#cancelRequest?.();
    this.#connection?.close(null);
    this.#connection = null;
    this.#body = null;
  }

  #outcome(error: string | null): Outcome {
    const { message, attempt } = this.#delivery;
    if (error !== null) this.#body?.drop();
    const response =
      error === null
        ? { status: this.#status, headers: this.#headers, body: this.#body?.finish() ?? noBytes }
        : noResponse;
    const endedAt = this.#options.clock.now();
    const sentAt = this.#sentAt ?? this.#beganAt;
    const outcome: Outcome = {
      account: message.account,
      messageId: message.id,
      host: this.#host,
      attempt,
      ...response,
      error,
      took: Math.max(0, endedAt - sentAt),
      timing: {
        startedAt: this.#beganAt,
        connect: this.#sentAt === null ? null : Math.max(0, this.#sentAt - this.#beganAt),
        firstByte: this.#respondedAt === null ? null : Math.max(0, this.#respondedAt - sentAt),
        duration: Math.max(0, endedAt - this.#beganAt),
      },
    };
    const isSlow = endedAt - this.#beganAt > slowAttempt;
    // A plain success is stored without any further detail.
    if (this.#opening && outcome.timing && (isSlow || !isSuccessStatus(response.status)))
      outcome.timing.opening = this.#opening;
    const { responseBytes: keptBytes } = this.#options.limits;
    if (error === null && this.#isCut) outcome.cut = true;
    if (this.#isUnanswered) outcome.unanswered = true;
    if (message.keepResponse) outcome.keepsInLog = true;
    if (response.body.byteLength > keptBytes) outcome.keptBytes = keptBytes;
    if (response.body.byteLength > Math.min(keptBytes, logBodyBytes))
      outcome.digest = hash("sha256", response.body, "hex");
    return outcome;
  }
}

const tooSlowError =
  `less than ${leastProgress.bytes / 1024} KiB of the response arrived in ${leastProgress.looks} s ` +
  "while other responses waited for memory";

const noRequest: HttpRequest = { method: "", path: "", headers: [], body: [] };

type AttemptOptions = {
  delivery: Delivery;
  host: string;
  options: DeliverOptions;
  resolve: (outcome: Outcome) => void;
  room: ResponseRoom;
};

const noResponse = { status: null, headers: [], body: noBytes };

/**
 * Reports whether the response must be read. A success needs no response unless a callback, a run or the log
 * uses it, or its headers may say that the outcome is reported later.
 */
const isResponseNeeded = ({ message }: Delivery, status: number): boolean =>
  !isSuccessStatus(status) ||
  message.callback !== null ||
  message.reportsOn !== null ||
  message.run?.first !== undefined ||
  message.ackKey !== undefined ||
  message.keepResponse === true;

/**
 * Reports whether a callback may contain the response. All messages of a run share the failure callback of
 * the run.
 */
const isReportedByCallback = (
  { message: { callback, failureCallback, run } }: Delivery,
  status: number | null,
): boolean =>
  callback !== null ||
  (!isSuccessStatus(status) && (failureCallback !== null || run?.kind === "step" || run?.kind === "result"));

const toHeaderList = (fields: HeaderList): HeaderList =>
  fields.slice(0, maxHeaders).map(([name, value]): [string, string] => [canonicalName(name), value]);

const formatMebibytes = (bytes: number): string => `${bytes / 1024 / 1024} MiB`;

const formatTime = (time: Millis): string => (time < 1000 ? `${time} ms` : `${time / 1000} s`);
