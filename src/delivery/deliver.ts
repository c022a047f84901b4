import { hash } from "node:crypto";
import { brandNames } from "../core/values/brand.ts";
import { limits as bounds, logBodyBytes } from "../core/values/limits.ts";
import { deliveryHeaders, standardHeaders, type DeliveryHeaderName } from "../core/values/deliveryHeaders.ts";
import { canonicalName, headerValue, inLatin } from "../core/values/headers.ts";
import type { LongWork } from "../core/fairness/longWork.ts";
import { noBytes } from "../core/model/message.ts";
import { parsedUrl, type ParsedUrl, sentPath } from "../core/values/url.ts";
import type { AccountId, Brand, Delivery, HeaderList, IdKind, Millis, Outcome } from "../core/model/message.ts";
import { BadAnswer } from "./http/response.ts";
import type { Room } from "./http/bodyBytes.ts";
import { unlimited } from "./http/bodyBytes.ts";
import { alarm, type Clock } from "../clock/clock.ts";
import { Lost, type Caller, type Connection, type Request } from "./http/connection.ts";
import { Closed, Connections } from "./http/pool.ts";
import { EgressRefusal, type Egress } from "./http/egress.ts";
import { ResponseBody } from "./http/responseBody.ts";
import { sign, signStandard } from "./signature.ts";
import { isSuccessStatus } from "../core/values/status.ts";

/** A call to a destination. `outcome` never rejects: no answer is an outcome too. `abort` ends it at once, if it has not ended. */
export type DeliveryCall = { outcome: Promise<Outcome>; abort(): void };

/** Begins one call to a destination, whose response takes its memory from `room`. Without `room` there is as much as is needed. */
export type Deliver = (delivery: Delivery, room?: Room) => DeliveryCall;

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
  const connections = new Connections({
    connector: egress.connector(limits.connectTimeout),
    perOrigin: limits.connectionsPerOrigin,
    longWork: options.longWork,
    ...(limits.sockets !== undefined && { inAll: limits.sockets }),
  });
  const deliver: Deliver = (delivery, room = unlimited) => {
    const { promise: outcome, resolve } = Promise.withResolvers<Outcome>();
    const url = parsedUrl(delivery.message.url);
    const call = new Call({ delivery, host: url?.host ?? "", options, resolve, room });
    // Behind the answers to those who published, which are on their way: making and signing a request takes longer than one of those.
    process.nextTick(() => call.begin(connections, url));
    return { outcome, abort: () => call.end(aborted) };
  };
  return { deliver, close: async () => connections.close() };
}

const mostHeaders = 100;
const aborted = "aborted";

/** One delivery under way: takes what is heard of it, and makes one outcome of it. */
class Call implements Caller {
  request: Request = noRequest;
  readonly account: AccountId;
  readonly #delivery: Delivery;
  readonly #options: DeliverOptions;
  readonly #resolve: (outcome: Outcome) => void;
  readonly #room: Room;
  readonly #host: string;
  /** Before anything is sent, when it was begun; then when it was sent first, as it may be resent within the attempt. */
  #startedAt: Millis;
  #isSent = false;
  #silence: (() => void) | null = null;
  #takeBack: (() => void) | null = null;
  #connection: Connection | null = null;
  #ended = false;
  #status: number | null = null;
  #headers: HeaderList = [];
  #body: ResponseBody | null = null;
  /** Bytes of a body that is not kept. */
  #unkept = 0;
  /** Not all of the headers, or of the body, were taken. */
  #isCut = false;

  constructor({ delivery, host, options, resolve, room }: CallOptions) {
    this.#delivery = delivery;
    this.account = delivery.message.account;
    this.#host = host;
    this.#options = options;
    this.#resolve = resolve;
    this.#room = room;
    this.#startedAt = options.clock.now();
  }

  /** From here the deadline runs: it covers the name, the connection, the request and the whole answer. */
  begin(connections: Connections, url: ParsedUrl | null): void {
    if (this.#ended) return;
    try {
      const { request, to } = compose(this.#delivery, url, this.#options);
      this.request = request;
      const { timeout } = this.#delivery.message;
      this.#silence = alarm(timeout, () => this.#expire(timeout));
      this.#takeBack = connections.send(to, this);
    } catch (error) {
      this.end(sentenceOf(error));
    }
  }

  /** A response of which more has come than is kept anyway is cut; any other is none. */
  #expire(timeout: Millis): void {
    const isEnough = this.#body !== null && this.#body.size > this.#options.limits.responseBytes && !this.#isCall;
    this.#isCut ||= isEnough;
    const why = this.#body?.isWaiting ? " while the server had no memory for more of the response" : "";
    this.end(isEnough ? null : `timed out after ${inWords(timeout)}${why}`);
  }

  sent(connection: Connection): void {
    this.#connection = connection;
    if (!this.#isSent) this.#startedAt = this.#options.clock.now();
    this.#isSent = true;
  }

  begins(status: number, fields: () => HeaderList, length: number | null): void {
    if (this.#ended) return;
    this.#status = status;
    if (!isWanted(this.#delivery, status)) return;
    const all = fields();
    this.#headers = headerList(all);
    this.#isCut = all.length > mostHeaders;
    const most = this.#mostBytes;
    if (this.#isCall && length !== null && length > most) return this.#endTooLarge();
    this.#body = new ResponseBody({
      ...{ room: this.#room, length, kept: this.#isCall ? most : this.#options.limits.responseBytes, most },
      pause: () => this.#connection?.pause(),
      resume: () => this.#connection?.resume(),
    });
  }

  continues(bytes: Buffer): void {
    if (this.#ended) return;
    const isWhole = this.#body ? this.#body.add(bytes) === bytes.length : (this.#unkept += bytes.length) <= this.#mostBytes;
    if (isWhole) return;
    if (this.#isCall) return this.#endTooLarge();
    this.#isCut = this.#body !== null;
    this.end(null);
  }

  /** A cut response is not enough: a step would continue with half of it, and could not know. */
  #endTooLarge(): void {
    this.end(`the answer is larger than ${inMebibytes(this.#mostBytes)}`);
  }

  get #isCall(): boolean {
    return this.#delivery.message.run?.kind === "call";
  }

  /** The answer of a third party is a step of a workflow, and may be as large as that. A callback has room for as much in base64. */
  get #mostBytes(): number {
    const { responseBytes } = this.#options.limits;
    if (this.#isCall) return Math.max(responseBytes, bounds.messageBytes);
    return isTold(this.#delivery, this.#status) ? Math.max(responseBytes, (bounds.messageBytes / 4) * 3) : responseBytes;
  }

  ends(): void {
    this.#connection = null;
    this.end(null);
  }

  fails(error: unknown): void {
    this.#connection = null;
    this.end(sentenceOf(error));
  }

  /** Ends the call with what has been received, or with an error; only the first end counts. Closes the connection unless it is done with. */
  end(error: string | null): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#silence?.();
    this.#resolve(this.#outcome(error));
    this.#takeBack?.();
    this.#connection?.close(null);
    this.#connection = null;
    this.#body = null;
  }

  #outcome(error: string | null): Outcome {
    const { message, attempt } = this.#delivery;
    if (error !== null) this.#body?.drop();
    const answer = error === null ? { status: this.#status, headers: this.#headers, body: this.#body?.finish() ?? noBytes } : noAnswer;
    const took = Math.max(0, this.#options.clock.now() - this.#startedAt);
    const outcome: Outcome = { account: message.account, messageId: message.id, host: this.#host, attempt, ...answer, error, took };
    const { responseBytes: kept } = this.#options.limits;
    if (error === null && this.#isCut) outcome.cut = true;
    if (message.keepResponse) outcome.logged = true;
    if (answer.body.byteLength > kept) outcome.kept = kept;
    if (answer.body.byteLength > Math.min(kept, logBodyBytes)) outcome.digest = hash("sha256", answer.body, "hex");
    return outcome;
  }
}

const noRequest: Request = { method: "", path: "", headers: [], body: noBytes };

type CallOptions = { delivery: Delivery; host: string; options: DeliverOptions; resolve: (outcome: Outcome) => void; room: Room };

const noAnswer = { status: null, headers: [], body: noBytes };

/** An answer that says no more than "delivered" is needed only if someone is to be told of it, or the log keeps it. */
const isWanted = ({ message }: Delivery, status: number): boolean =>
  !isSuccessStatus(status) ||
  [message.callback !== null, message.tells !== null, message.run?.first !== undefined, message.keepResponse === true].includes(true);

/** Whether a callback tells of the response, or may: a run has its failure callback for all of its messages. */
const isTold = ({ message: { callback, failureCallback, run } }: Delivery, status: number | null): boolean =>
  callback !== null || (!isSuccessStatus(status) && (failureCallback !== null || run?.kind === "step" || run?.kind === "result"));

const headerList = (fields: HeaderList): HeaderList =>
  fields.slice(0, mostHeaders).map(([name, value]): [string, string] => [canonicalName(name), value]);

/** The request as it is sent. Throws an `Unsendable` for what HTTP cannot carry. */
function compose(delivery: Delivery, url: ParsedUrl | null, options: DeliverOptions): { request: Request; to: ParsedUrl } {
  const { method, url: text, body } = delivery.message;
  if (url === null) throw new Unsendable("the URL is not valid");
  if (url.protocol !== "http:" && url.protocol !== "https:") throw new Unsendable("the URL is neither http nor https");
  const headers = headersOf(delivery, url, options);
  if (!tokens.test(method)) throw new Unsendable("the method cannot be sent over HTTP");
  return { request: { method, path: sentPath(text, url), headers, body }, to: url };
}

class Unsendable extends Error {}

/** Names and values in turn. The message's own come first; those that belong to the service are left out. */
function headersOf(delivery: Delivery, url: ParsedUrl, options: DeliverOptions): string[] {
  const { message, standardKeys } = delivery;
  const headers: string[] = [];
  let agent: string | null = brandNames[message.brand].userAgent;
  let credentials = url.username === "" && url.password === "" ? null : basic(url);
  for (const [name, value] of message.headers) {
    const lower = name.toLowerCase();
    if (reserved.has(lower) || (standardKeys && ofStandard.has(lower))) continue;
    if (!tokens.test(name)) throw unsendableHeader(name);
    if (lower === "user-agent") agent = null;
    if (lower === "authorization") credentials = null;
    headers.push(name, value);
    const twin = twinOf(message, name);
    if (twin !== null) headers.push(twin, value);
  }
  if (agent !== null) headers.push("User-Agent", agent);
  if (credentials !== null) headers.push("Authorization", credentials);
  for (const brand of brandsOf(message)) headers.push(...ownHeaders(delivery, brand, options));
  if (standardKeys) headers.push(...signStandard({ id: message.id, body: message.body, keys: standardKeys, now: options.clock.now() }));
  for (let at = 0; at + 1 < headers.length; at += 2) if (unsendable.test(headers[at + 1] ?? "")) throw unsendableHeader(headers[at] ?? "");
  return headers;
}

const unsendableHeader = (name: string): Unsendable =>
  new Unsendable(`the header ${JSON.stringify(name.slice(0, 100))} cannot be sent over HTTP`);

/** A workflow that was started under the neutral names may be served by a client that knows the others only, so it gets both. */
const brandsOf = (message: Delivery["message"]): readonly Brand[] => (hasTwins(message) ? ["svc", "upstash"] : [message.brand]);

const hasTwins = ({ brand, run }: Delivery["message"]): boolean => run !== undefined && run.kind !== "call" && brand === "svc";

function twinOf(message: Delivery["message"], name: string): string | null {
  const twin = hasTwins(message) && /^Svc-(Workflow-|Label$)/.test(name) ? name.replace("Svc-", "Upstash-") : null;
  return twin !== null && headerValue(message.headers, twin) === undefined ? twin : null;
}

function ownHeaders({ message, attempt, signingKey }: Delivery, brand: Brand, { clock, region, newId }: DeliverOptions): string[] {
  const names = ownNames[brand];
  const headers: string[] = [];
  const { url: destination, body } = message;
  headers.push(names.signature, sign({ brand, url: destination, body, signingKey, now: clock.now(), id: newId("jwt") }));
  headers.push(names.messageId, message.id, names.retried, String(attempt));
  if (message.callerIp !== null) headers.push(names.callerIp, message.callerIp);
  if (message.group !== null) headers.push(names.topicName, message.group);
  if (message.scheduleId !== null) headers.push(names.scheduleId, message.scheduleId);
  // A third party is told nothing of the run: if it is a workflow itself, this is no message of its own.
  if (message.run && message.run.kind !== "call")
    headers.push(names.runId, inLatin(message.run.runId), names.runCreatedAt, String(message.run.createdAt));
  headers.push(names.region, region);
  return headers;
}

function basic({ username, password }: ParsedUrl): string {
  return `Basic ${Buffer.from(`${decoded(username)}:${decoded(password)}`).toString("base64")}`;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const namesOf = (brand: Brand): Record<DeliveryHeaderName, string> =>
  Object.fromEntries(
    Object.entries(deliveryHeaders).map(([header, { name }]) => [header, `${brandNames[brand].prefix}-${name}`]),
  ) as Record<DeliveryHeaderName, string>;

const ownNames: Record<Brand, ReturnType<typeof namesOf>> = { svc: namesOf("svc"), upstash: namesOf("upstash") };

/** Forwarded headers that are not sent: they belong to the connection, or would pretend to be the service's own. */
const reserved: ReadonlySet<string> = new Set([
  ..."host content-length transfer-encoding connection keep-alive upgrade te trailer expect http2-settings".split(" "),
  ..."proxy-connection proxy-authenticate proxy-authorization".split(" "),
  ...Object.values(ownNames).flatMap((names) => Object.values(names).map((name) => name.toLowerCase())),
]);

/** The same where deliveries are signed by Standard Webhooks; elsewhere those of whoever published are forwarded. */
const ofStandard: ReadonlySet<string> = new Set(Object.keys(standardHeaders));

/** RFC 9110, 5.6.2 and 5.5. Checked here, so that whoever reads the log learns which header it is. */
const tokens = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const unsendable = /[^\t\x20-\x7e\x80-\xff]/;

const inMebibytes = (bytes: number): string => `${bytes / 1024 / 1024} MiB`;

const inWords = (time: Millis): string => (time < 1000 ? `${time} ms` : `${time / 1000} s`);

/** Why there is no answer: a short sentence that tells nothing of what was read on the way. */
function sentenceOf(error: unknown): string {
  if (error instanceof EgressRefusal || error instanceof Unsendable) return error.message;
  if (error instanceof BadAnswer) return error.message;
  if (error instanceof Lost) return lost;
  if (error instanceof Closed) return aborted;
  const code = codeOf(error);
  const known = sentences[code];
  if (known !== undefined) return known;
  if (withoutTls.has(code))
    return `TLS problem: the destination does not speak TLS on this port (${code}); http:// or another port is meant`;
  if (/^(ERR_TLS|ERR_SSL|EPROTO)|CERT|_SIGNATURE|HOSTNAME_MISMATCH/.test(code)) return `TLS problem: ${code}`;
  return code === "" ? "the request failed" : `the request failed: ${code}`;
}

const codeOf = (error: unknown): string =>
  typeof error === "object" && error !== null && "code" in error && typeof error.code === "string" ? error.code : "";

/** What is heard of a destination that answers the first bytes of TLS with something else. */
const withoutTls: ReadonlySet<string> = new Set([
  "ERR_SSL_WRONG_VERSION_NUMBER",
  "ERR_SSL_PACKET_LENGTH_TOO_LONG",
  "ERR_SSL_UNKNOWN_PROTOCOL",
  "ERR_SSL_HTTP_REQUEST",
]);

const lost = "connection lost before the answer was complete";

const sentences: Readonly<Record<string, string>> = {
  ECONNREFUSED: "connection refused",
  ECONNRESET: lost,
  EPIPE: lost,
  ETIMEDOUT: "connecting timed out",
  UND_ERR_CONNECT_TIMEOUT: "connecting timed out",
  ENOTFOUND: "name not found",
  EAI_AGAIN: "name not found: the name server did not answer",
  EHOSTUNREACH: "address unreachable",
  ENETUNREACH: "address unreachable",
  EADDRNOTAVAIL: "address unreachable",
};
