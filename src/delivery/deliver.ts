import { hash } from "node:crypto";
import { brandNames } from "../core/values/brand.ts";
import { limits as bounds, logBodyBytes } from "../core/values/limits.ts";
import { deliveryHeaders, standardHeaders, type DeliveryHeaderName } from "../core/values/deliveryHeaders.ts";
import { canonicalName, headerValue, toLatin1 } from "../core/values/headers.ts";
import type { LongWork } from "../core/fairness/longWork.ts";
import { noBytes } from "../core/model/message.ts";
import { parseUrl, type ParsedUrl, requestPath } from "../core/values/url.ts";
import type { AccountId, Brand, Delivery, HeaderList, IdKind, Millis, Outcome } from "../core/model/message.ts";
import { BadResponse } from "./http/response.ts";
import type { ResponseRoom } from "./http/bodyBytes.ts";
import { unlimitedRoom } from "./http/bodyBytes.ts";
import { alarm, type Clock } from "../clock/clock.ts";
import { ConnectionLost, type RequestCaller, type HttpConnection, type HttpRequest } from "./http/connection.ts";
import { PoolClosed, ConnectionPool } from "./http/pool.ts";
import { EgressRefusal, type Egress } from "./http/egress.ts";
import { ResponseBody } from "./http/responseBody.ts";
import { signJwt, signStandard } from "./signature.ts";
import { isSuccessStatus } from "../core/values/status.ts";

/** A call to a destination. `outcome` never rejects: no answer is an outcome too. `abort` ends it at once, if it has not ended. */
export type DeliveryCall = { outcome: Promise<Outcome>; abort(): void };

/** Begins one call to a destination, whose response takes its memory from `room`. Without `room` there is as much as is needed. */
export type Deliver = (delivery: Delivery, room?: ResponseRoom) => DeliveryCall;

export type DeliverOptions = {
  egress: Egress;
  clock: Clock;
  limits: {
    /** A longer response is cut, and the rest is not read; except as far as a callback tells of it. Dead letters keep this much. */
    responseBytes: number;
    connectTimeout: Millis;
    /** Best as many as there are hands: a call that waits for a connection here is using up its own time. */
    connectionsPerOrigin: number;
    /** Sockets to all destinations. Absent: as many as are needed. */
    sockets?: number;
  };
  region: string;
  longWork: LongWork;
  newId(kind: IdKind): string;
};

/** A `deliver` with its own connections. `close` ends whatever is still running. */
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
    // Behind the answers to those who published, which are on their way: making and signing a request takes longer than one of those.
    process.nextTick(() => attempt.begin(connections, url));
    return { outcome, abort: () => attempt.end(abortedError) };
  };
  return { deliver, close: async () => connections.close() };
}

const maxHeaders = 100;
const abortedError = "aborted";

/** One delivery under way: takes what is heard of it, and makes one outcome of it. */
class DeliveryAttempt implements RequestCaller {
  request: HttpRequest = noRequest;
  readonly account: AccountId;
  readonly #delivery: Delivery;
  readonly #options: DeliverOptions;
  readonly #resolve: (outcome: Outcome) => void;
  readonly #room: ResponseRoom;
  readonly #host: string;
  /** Before anything is sent, when it was begun; then when it was sent first, as it may be resent within the attempt. */
  #startedAt: Millis;
  #isSent = false;
  #cancelTimeout: (() => void) | null = null;
  #cancelRequest: (() => void) | null = null;
  #connection: HttpConnection | null = null;
  #hasEnded = false;
  #status: number | null = null;
  #headers: HeaderList = [];
  #body: ResponseBody | null = null;
  /** Bytes of a body that is not kept. */
  #discardedBytes = 0;
  /** Not all of the headers, or of the body, were taken. */
  #isCut = false;

  constructor({ delivery, host, options, resolve, room }: AttemptOptions) {
    this.#delivery = delivery;
    this.account = delivery.message.account;
    this.#host = host;
    this.#options = options;
    this.#resolve = resolve;
    this.#room = room;
    this.#startedAt = options.clock.now();
  }

  /** From here the deadline runs: it covers the name, the connection, the request and the whole answer. */
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

  /** A response of which more has come than is kept anyway is cut; any other is none. */
  #expire(timeout: Millis): void {
    const isEnough = this.#body !== null && this.#body.size > this.#options.limits.responseBytes && !this.#isCall;
    this.#isCut ||= isEnough;
    const reason = this.#body?.isWaiting ? " while the server had no memory for more of the response" : "";
    this.end(isEnough ? null : `timed out after ${formatTime(timeout)}${reason}`);
  }

  onSent(connection: HttpConnection): void {
    this.#connection = connection;
    if (!this.#isSent) this.#startedAt = this.#options.clock.now();
    this.#isSent = true;
  }

  onResponse(status: number, fields: () => HeaderList, length: number | null): void {
    if (this.#hasEnded) return;
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
    });
  }

  onBody(bytes: Buffer): void {
    if (this.#hasEnded) return;
    const isWhole = this.#body ? this.#body.add(bytes) === bytes.length : (this.#discardedBytes += bytes.length) <= this.#maxBytes;
    if (isWhole) return;
    if (this.#isCall) return this.#endTooLarge();
    this.#isCut = this.#body !== null;
    this.end(null);
  }

  /** A cut response is not enough: a step would continue with half of it, and could not know. */
  #endTooLarge(): void {
    this.end(`the answer is larger than ${formatMebibytes(this.#maxBytes)}`);
  }

  get #isCall(): boolean {
    return this.#delivery.message.run?.kind === "call";
  }

  /** The answer of a third party is a step of a workflow, and may be as large as that. A callback has room for as much in base64. */
  get #maxBytes(): number {
    const { responseBytes } = this.#options.limits;
    if (this.#isCall) return Math.max(responseBytes, bounds.messageBytes);
    return isReportedByCallback(this.#delivery, this.#status) ? Math.max(responseBytes, (bounds.messageBytes / 4) * 3) : responseBytes;
  }

  onEnd(): void {
    this.#connection = null;
    this.end(null);
  }

  onFailure(error: unknown): void {
    this.#connection = null;
    this.end(toErrorText(error));
  }

  /** Ends the call with what has been received, or with an error; only the first end counts. Closes the connection unless it is done with. */
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
    const response = error === null ? { status: this.#status, headers: this.#headers, body: this.#body?.finish() ?? noBytes } : noResponse;
    const took = Math.max(0, this.#options.clock.now() - this.#startedAt);
    const outcome: Outcome = { account: message.account, messageId: message.id, host: this.#host, attempt, ...response, error, took };
    const { responseBytes: keptBytes } = this.#options.limits;
    if (error === null && this.#isCut) outcome.cut = true;
    if (message.keepResponse) outcome.keepsInLog = true;
    if (response.body.byteLength > keptBytes) outcome.keptBytes = keptBytes;
    if (response.body.byteLength > Math.min(keptBytes, logBodyBytes)) outcome.digest = hash("sha256", response.body, "hex");
    return outcome;
  }
}

const noRequest: HttpRequest = { method: "", path: "", headers: [], body: noBytes };

type AttemptOptions = {
  delivery: Delivery;
  host: string;
  options: DeliverOptions;
  resolve: (outcome: Outcome) => void;
  room: ResponseRoom;
};

const noResponse = { status: null, headers: [], body: noBytes };

/** An answer that says no more than "delivered" is needed only if someone is to be told of it, or the log keeps it. */
const isResponseNeeded = ({ message }: Delivery, status: number): boolean =>
  !isSuccessStatus(status) ||
  [message.callback !== null, message.reportsOn !== null, message.run?.first !== undefined, message.keepResponse === true].includes(true);

/** Whether a callback tells of the response, or may: a run has its failure callback for all of its messages. */
const isReportedByCallback = ({ message: { callback, failureCallback, run } }: Delivery, status: number | null): boolean =>
  callback !== null || (!isSuccessStatus(status) && (failureCallback !== null || run?.kind === "step" || run?.kind === "result"));

const toHeaderList = (fields: HeaderList): HeaderList =>
  fields.slice(0, maxHeaders).map(([name, value]): [string, string] => [canonicalName(name), value]);

/** The request as it is sent. Throws an `Unsendable` for what HTTP cannot carry. */
function composeRequest(delivery: Delivery, url: ParsedUrl | null, options: DeliverOptions): { request: HttpRequest; to: ParsedUrl } {
  const { method, url: text, body } = delivery.message;
  if (url === null) throw new Unsendable("the URL is not valid");
  if (url.protocol !== "http:" && url.protocol !== "https:") throw new Unsendable("the URL is neither http nor https");
  const headers = makeHeaders(delivery, url, options);
  if (!tokenPattern.test(method)) throw new Unsendable("the method cannot be sent over HTTP");
  return { request: { method, path: requestPath(text, url), headers, body }, to: url };
}

class Unsendable extends Error {}

/** Names and values in turn. The message's own come first; those that belong to the service are left out. */
function makeHeaders(delivery: Delivery, url: ParsedUrl, options: DeliverOptions): string[] {
  const { message, standardKeys } = delivery;
  const headers: string[] = [];
  let agent: string | null = brandNames[message.brand].userAgent;
  let credentials = url.username === "" && url.password === "" ? null : formatBasic(url);
  for (const [name, value] of message.headers) {
    const lowerName = name.toLowerCase();
    if (reserved.has(lowerName) || (standardKeys && standardHeaderNames.has(lowerName))) continue;
    if (!tokenPattern.test(name)) throw makeHeaderError(name);
    if (lowerName === "user-agent") agent = null;
    if (lowerName === "authorization") credentials = null;
    headers.push(name, value);
    const twin = findTwinHeader(message, name);
    if (twin !== null) headers.push(twin, value);
  }
  if (agent !== null) headers.push("User-Agent", agent);
  if (credentials !== null) headers.push("Authorization", credentials);
  for (const brand of listBrands(message)) headers.push(...makeOwnHeaders(delivery, brand, options));
  if (standardKeys) headers.push(...signStandard({ id: message.id, body: message.body, keys: standardKeys, now: options.clock.now() }));
  for (let at = 0; at + 1 < headers.length; at += 2)
    if (invalidValuePattern.test(headers[at + 1] ?? "")) throw makeHeaderError(headers[at] ?? "");
  return headers;
}

const makeHeaderError = (name: string): Unsendable =>
  new Unsendable(`the header ${JSON.stringify(name.slice(0, 100))} cannot be sent over HTTP`);

/** A workflow that was started under the neutral names may be served by a client that knows the others only, so it gets both. */
const listBrands = (message: Delivery["message"]): readonly Brand[] => (hasBothBrands(message) ? ["svc", "upstash"] : [message.brand]);

const hasBothBrands = ({ brand, run }: Delivery["message"]): boolean => run !== undefined && run.kind !== "call" && brand === "svc";

function findTwinHeader(message: Delivery["message"], name: string): string | null {
  const twin = hasBothBrands(message) && /^Svc-(Workflow-|Label$)/.test(name) ? name.replace("Svc-", "Upstash-") : null;
  return twin !== null && headerValue(message.headers, twin) === undefined ? twin : null;
}

function makeOwnHeaders({ message, attempt, signingKey }: Delivery, brand: Brand, { clock, region, newId }: DeliverOptions): string[] {
  const names = ownNames[brand];
  const headers: string[] = [];
  const { url: destination, body } = message;
  headers.push(names.signature, signJwt({ brand, url: destination, body, signingKey, now: clock.now(), id: newId("jwt") }));
  headers.push(names.messageId, message.id, names.retried, String(attempt));
  if (message.callerIp !== null) headers.push(names.callerIp, message.callerIp);
  if (message.group !== null) headers.push(names.topicName, message.group);
  if (message.scheduleId !== null) headers.push(names.scheduleId, message.scheduleId);
  // A third party is told nothing of the run: if it is a workflow itself, this is no message of its own.
  if (message.run && message.run.kind !== "call")
    headers.push(names.runId, toLatin1(message.run.runId), names.runCreatedAt, String(message.run.createdAt));
  headers.push(names.region, region);
  return headers;
}

function formatBasic({ username, password }: ParsedUrl): string {
  return `Basic ${Buffer.from(`${decodeComponent(username)}:${decodeComponent(password)}`).toString("base64")}`;
}

function decodeComponent(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const makeHeaderNames = (brand: Brand): Record<DeliveryHeaderName, string> =>
  Object.fromEntries(
    Object.entries(deliveryHeaders).map(([header, { name }]) => [header, `${brandNames[brand].prefix}-${name}`]),
  ) as Record<DeliveryHeaderName, string>;

const ownNames: Record<Brand, ReturnType<typeof makeHeaderNames>> = { svc: makeHeaderNames("svc"), upstash: makeHeaderNames("upstash") };

/** Forwarded headers that are not sent: they belong to the connection, or would pretend to be the service's own. */
const reserved: ReadonlySet<string> = new Set([
  ..."host content-length transfer-encoding connection keep-alive upgrade te trailer expect http2-settings".split(" "),
  ..."proxy-connection proxy-authenticate proxy-authorization".split(" "),
  ...Object.values(ownNames).flatMap((names) => Object.values(names).map((name) => name.toLowerCase())),
]);

/** The same where deliveries are signed by Standard Webhooks; elsewhere those of whoever published are forwarded. */
const standardHeaderNames: ReadonlySet<string> = new Set(Object.keys(standardHeaders));

/** RFC 9110, 5.6.2 and 5.5. Checked here, so that whoever reads the log learns which header it is. */
const tokenPattern = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const invalidValuePattern = /[^\t\x20-\x7e\x80-\xff]/;

const formatMebibytes = (bytes: number): string => `${bytes / 1024 / 1024} MiB`;

const formatTime = (time: Millis): string => (time < 1000 ? `${time} ms` : `${time / 1000} s`);

/** Why there is no answer: a short sentence that tells nothing of what was read on the way. */
function toErrorText(error: unknown): string {
  if (error instanceof EgressRefusal || error instanceof Unsendable) return error.message;
  if (error instanceof BadResponse) return error.message;
  if (error instanceof ConnectionLost) return lostError;
  if (error instanceof PoolClosed) return abortedError;
  const code = readErrorCode(error);
  const known = errorTexts[code];
  if (known !== undefined) return known;
  if (notTlsCodes.has(code))
    return `TLS problem: the destination does not speak TLS on this port (${code}); http:// or another port is meant`;
  if (/^(ERR_TLS|ERR_SSL|EPROTO)|CERT|_SIGNATURE|HOSTNAME_MISMATCH/.test(code)) return `TLS problem: ${code}`;
  return code === "" ? "the request failed" : `the request failed: ${code}`;
}

const readErrorCode = (error: unknown): string =>
  typeof error === "object" && error !== null && "code" in error && typeof error.code === "string" ? error.code : "";

/** What is heard of a destination that answers the first bytes of TLS with something else. */
const notTlsCodes: ReadonlySet<string> = new Set([
  "ERR_SSL_WRONG_VERSION_NUMBER",
  "ERR_SSL_PACKET_LENGTH_TOO_LONG",
  "ERR_SSL_UNKNOWN_PROTOCOL",
  "ERR_SSL_HTTP_REQUEST",
]);

const lostError = "connection lost before the answer was complete";

const errorTexts: Readonly<Record<string, string>> = {
  ECONNREFUSED: "connection refused",
  ECONNRESET: lostError,
  EPIPE: lostError,
  ETIMEDOUT: "connecting timed out",
  UND_ERR_CONNECT_TIMEOUT: "connecting timed out",
  ENOTFOUND: "name not found",
  EAI_AGAIN: "name not found: the name server did not answer",
  EHOSTUNREACH: "address unreachable",
  ENETUNREACH: "address unreachable",
  EADDRNOTAVAIL: "address unreachable",
};
