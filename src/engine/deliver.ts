import { errors, type Dispatcher } from "undici";
import { brandNames } from "../core/brand.ts";
import { limits as bounds } from "../core/limits.ts";
import { canonicalName, headerValue, inLatin } from "../core/headers.ts";
import { noBytes } from "../core/message.ts";
import type { Brand, Bytes, Delivery, HeaderList, IdKind, Millis, Outcome } from "../core/message.ts";
import { alarm, type Clock } from "./clock.ts";
import { createConnections, type Connections } from "./connections.ts";
import { EgressRefusal, type Egress } from "./egress.ts";
import { sign, signStandard } from "./signature.ts";

/** A call to a destination. `outcome` never rejects: no answer is an outcome too. `abort` ends it at once, if it has not ended. */
export type DeliveryCall = { outcome: Promise<Outcome>; abort(): void };

/** Begins one call to a destination. */
export type Deliver = (delivery: Delivery) => DeliveryCall;

export type DeliverOptions = {
  egress: Egress;
  clock: Clock;
  limits: {
    /** What is longer is cut, and the rest is not read. */
    responseBytes: number;
    connectTimeout: Millis;
    /** Best as many as there are hands: a call that waits for a connection here is using up its own time. */
    connectionsPerOrigin: number;
  };
  region: string;
  newId(kind: IdKind): string;
};

/** A `deliver` with its own connections. `close` ends whatever is still running. */
export function createDeliver(options: DeliverOptions): { deliver: Deliver; close(): Promise<void> } {
  const connections = connectionsBy(options);
  const deliver: Deliver = (delivery) => {
    const { promise: outcome, resolve } = Promise.withResolvers<Outcome>();
    const url = URL.parse(delivery.message.url);
    const call = new Call({ delivery, host: url?.host ?? "", options, resolve });
    try {
      const request = compose(delivery, url, options);
      call.begin();
      connections.to(request.origin).dispatch(request, call);
    } catch (error) {
      call.end(sentenceOf(error));
    }
    return { outcome, abort: () => call.end(aborted) };
  };
  return { deliver, close: () => connections.close() };
}

function connectionsBy({ egress, limits }: DeliverOptions): Connections {
  return createConnections({
    connect: egress.connector(limits.connectTimeout),
    connections: limits.connectionsPerOrigin,
    // One request at a time on a connection, and no HTTP/2: an attempt that is cut off takes nobody else's with it.
    pipelining: 1,
    allowH2: false,
    // Every call has one deadline of its own.
    headersTimeout: 0,
    bodyTimeout: 0,
    // Idle connections go soon, before most servers close them: a request that meets a closing connection is a failed attempt.
    keepAliveTimeout: 4_000,
    keepAliveMaxTimeout: 30_000,
    maxHeaderSize: mostHeaderBytes,
  });
}

const mostHeaderBytes = 32 * 1024;
const mostHeaders = 100;
const aborted = "aborted";

/** One delivery under way: takes what undici reports, and makes one outcome of it. */
class Call implements Dispatcher.DispatchHandler {
  readonly #delivery: Delivery;
  readonly #options: DeliverOptions;
  readonly #resolve: (outcome: Outcome) => void;
  readonly #host: string;
  #startedAt: Millis;
  #silence: (() => void) | null = null;
  #controller: Dispatcher.DispatchController | null = null;
  #ended = false;
  #status: number | null = null;
  #headers: HeaderList = [];
  #chunks: Bytes[] | null = null;
  #size = 0;

  constructor({ delivery, host, options, resolve }: CallOptions) {
    this.#delivery = delivery;
    this.#host = host;
    this.#options = options;
    this.#resolve = resolve;
    this.#startedAt = options.clock.now();
  }

  /** From here the deadline runs: it covers the name, the connection, the request and the whole answer. */
  begin(): void {
    const { timeout } = this.#delivery.message;
    this.#silence = alarm(timeout, () => this.end(`timed out after ${inWords(timeout)}`));
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    // It may have ended while it waited for its connection. Then it is never sent.
    if (this.#ended) return controller.abort(over);
    this.#controller = controller;
    this.#startedAt = this.#options.clock.now();
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number): void {
    if (status < 200) return;
    this.#status = status;
    if (!isWanted(this.#delivery, status)) return;
    this.#headers = headerList(controller.rawHeaders);
    this.#chunks = [];
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#ended) return;
    const room = this.#mostBytes - this.#size;
    // Copied, because a chunk is a window on a much larger buffer, which it would keep alive.
    this.#chunks?.push(new Uint8Array(chunk.length > room ? chunk.subarray(0, room) : chunk));
    this.#size += Math.min(chunk.length, room);
    // A step would go on with half an answer, and not know.
    if (chunk.length > room) this.end(this.#isCall ? `the answer is larger than ${inMebibytes(this.#mostBytes)}` : null);
  }

  get #isCall(): boolean {
    return this.#delivery.message.run?.kind === "call";
  }

  /** The answer of a third party is a step of a workflow, and may be as large as that. */
  get #mostBytes(): number {
    const { responseBytes } = this.#options.limits;
    return this.#isCall ? Math.max(responseBytes, bounds.messageBytes) : responseBytes;
  }

  onResponseEnd(): void {
    this.#controller = null;
    this.end(null);
  }

  onResponseError(_controller: Dispatcher.DispatchController | null, error: Error): void {
    this.#controller = null;
    this.end(sentenceOf(error));
  }

  /** Ends the call with what has been received, or with an error; only the first end counts. Closes the connection unless it is done with. */
  end(error: string | null): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#silence?.();
    this.#resolve(this.#outcome(error));
    this.#controller?.abort(over);
    this.#controller = null;
    this.#chunks = null;
  }

  #outcome(error: string | null): Outcome {
    const { message, attempt } = this.#delivery;
    const answer = error === null ? { status: this.#status, headers: this.#headers, body: joined(this.#chunks, this.#size) } : noAnswer;
    const took = Math.max(0, this.#options.clock.now() - this.#startedAt);
    return { account: message.account, messageId: message.id, host: this.#host, attempt, ...answer, error, took };
  }
}

type CallOptions = { delivery: Delivery; host: string; options: DeliverOptions; resolve: (outcome: Outcome) => void };

const noAnswer = { status: null, headers: [], body: noBytes };

/** The reason undici is given for a connection that must be closed. Nobody sees it, so one is enough. */
const over = new Error("the call is over");

/** An answer that says no more than "delivered" is needed only if someone is to be told of it. */
const isWanted = ({ message }: Delivery, status: number): boolean =>
  status < 200 || status > 299 || message.callback !== null || message.tells !== null || message.run?.first !== undefined;

function joined(chunks: readonly Bytes[] | null, size: number): Bytes {
  if (chunks === null || size === 0) return noBytes;
  if (chunks.length === 1 && chunks[0]) return chunks[0];
  const whole = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole;
}

function headerList(raw: Dispatcher.DispatchController["rawHeaders"]): HeaderList {
  if (!Array.isArray(raw)) return [];
  const list: [string, string][] = [];
  for (let at = 0; at + 1 < raw.length && list.length < mostHeaders; at += 2) {
    list.push([canonicalName(textOf(raw[at])), textOf(raw[at + 1])]);
  }
  return list;
}

const textOf = (bytes: Buffer | string | undefined): string => bytes?.toString("latin1") ?? "";

type Request = { origin: string; path: string; method: string; headers: string[]; body: Bytes | null };

/** The request as it is sent. Throws an `Unsendable` for what HTTP cannot carry. */
function compose(delivery: Delivery, url: URL | null, options: DeliverOptions): Request {
  const { method, url: text, body } = delivery.message;
  if (url === null) throw new Unsendable("the URL is not valid");
  if (url.protocol !== "http:" && url.protocol !== "https:") throw new Unsendable("the URL is neither http nor https");
  const headers = headersOf(delivery, url, options);
  // A body is sent with every method that has one.
  return { origin: url.origin, path: pathOf(text, url), method, headers, body: body.length === 0 ? null : body };
}

class Unsendable extends Error {}

/**
 * Path and query as they were given, byte for byte: a signed or oddly encoded path must arrive as it is.
 * Only text that no request line can hold is encoded, and only a URL that is written in an unusual way is normalised.
 */
function pathOf(text: string, url: URL): string {
  const rest = /^https?:\/\/[^/?#\\\0-\x20]+((?:[/?][^#\0-\x20]*)?)(?:#.*)?$/is.exec(text)?.[1];
  if (rest === undefined) return url.pathname + url.search;
  const path = rest.startsWith("/") ? rest : `/${rest}`;
  return path.replace(/[^\x21-\x7e]+/g, (odd) => encodeURIComponent(odd.toWellFormed()));
}

/** Names and values in turn, as undici takes them. The message's own come first; those that belong to the service are left out. */
function headersOf(delivery: Delivery, url: URL, options: DeliverOptions): string[] {
  const { message, standardKeys } = delivery;
  const headers: string[] = [];
  let agent: string | null = brandNames[message.brand].userAgent;
  let credentials = url.username === "" && url.password === "" ? null : basic(url);
  for (const [name, value] of message.headers) {
    const lower = name.toLowerCase();
    if (reserved.has(lower) || (standardKeys && ofStandard.has(lower))) continue;
    if (!tokens.test(name) || unsendable.test(value))
      throw new Unsendable(`the header ${JSON.stringify(name.slice(0, 100))} cannot be sent over HTTP`);
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
  return headers;
}

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

function basic({ username, password }: URL): string {
  return `Basic ${Buffer.from(`${decoded(username)}:${decoded(password)}`).toString("base64")}`;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const namesOf = (brand: Brand) => {
  const { prefix } = brandNames[brand];
  return {
    signature: `${prefix}-Signature`,
    messageId: `${prefix}-Message-Id`,
    retried: `${prefix}-Retried`,
    callerIp: `${prefix}-Caller-Ip`,
    topicName: `${prefix}-Topic-Name`,
    scheduleId: `${prefix}-Schedule-Id`,
    runId: `${prefix}-Workflow-RunId`,
    runCreatedAt: `${prefix}-Workflow-CreatedAt`,
    region: `${prefix}-Region`,
  };
};

const ownNames: Record<Brand, ReturnType<typeof namesOf>> = { svc: namesOf("svc"), upstash: namesOf("upstash") };

/** Forwarded headers that are not sent: they belong to the connection, or would pretend to be the service's own. */
const reserved: ReadonlySet<string> = new Set([
  ..."host content-length transfer-encoding connection keep-alive upgrade te trailer expect http2-settings".split(" "),
  ..."proxy-connection proxy-authenticate proxy-authorization".split(" "),
  ...Object.values(brandNames).flatMap(({ prefix }) =>
    "signature message-id retried region caller-ip topic-name schedule-id workflow-runid workflow-createdat"
      .split(" ")
      .map((name) => `${prefix.toLowerCase()}-${name}`),
  ),
]);

/** The same where deliveries are signed by Standard Webhooks; elsewhere those of whoever published are forwarded. */
const ofStandard: ReadonlySet<string> = new Set(["webhook-id", "webhook-timestamp", "webhook-signature"]);

/** RFC 9110, 5.6.2 and 5.5. Checked here, so that whoever reads the log learns which header it is. */
const tokens = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const unsendable = /[^\t\x20-\x7e\x80-\xff]/;

const inMebibytes = (bytes: number): string => `${bytes / 1024 / 1024} MiB`;

const inWords = (time: Millis): string => (time < 1000 ? `${time} ms` : `${time / 1000} s`);

/** Why there is no answer: a short sentence that tells nothing of what was read on the way. */
function sentenceOf(error: unknown): string {
  if (error instanceof EgressRefusal || error instanceof Unsendable) return error.message;
  const code = codeOf(error);
  const unasked = error instanceof errors.SocketError ? unaskedAnswers[error.message] : undefined;
  if (unasked !== undefined) return `the answer ${unasked}, which the request did not ask for`;
  const known = sentences[code];
  if (known !== undefined) return known;
  if (error instanceof errors.HTTPParserError) return "the answer is not valid HTTP";
  if (/^(ERR_TLS|ERR_SSL|EPROTO)|CERT|_SIGNATURE|HOSTNAME_MISMATCH/.test(code)) return `TLS problem: ${code}`;
  return code === "" ? "the request failed" : `the request failed: ${code}`;
}

const codeOf = (error: unknown): string =>
  typeof error === "object" && error !== null && "code" in error && typeof error.code === "string" ? error.code : "";

/** Answers that undici closes the connection for, by its words: there is no way to read on (8.12). */
const unaskedAnswers: Readonly<Record<string, string>> = {
  "bad response": "begins with 100 Continue",
  "bad upgrade": "is 101 Switching Protocols",
};

const sentences: Readonly<Record<string, string>> = {
  ECONNREFUSED: "connection refused",
  ECONNRESET: "connection lost before the answer was complete",
  EPIPE: "connection lost before the answer was complete",
  UND_ERR_SOCKET: "connection lost before the answer was complete",
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: "connection lost before the answer was complete",
  HPE_INVALID_EOF_STATE: "connection lost before the answer was complete",
  ETIMEDOUT: "connecting timed out",
  UND_ERR_CONNECT_TIMEOUT: "connecting timed out",
  ENOTFOUND: "name not found",
  EAI_AGAIN: "name not found: the name server did not answer",
  EHOSTUNREACH: "address unreachable",
  ENETUNREACH: "address unreachable",
  EADDRNOTAVAIL: "address unreachable",
  UND_ERR_HEADERS_OVERFLOW: `response headers larger than ${mostHeaderBytes / 1024} KiB`,
  UND_ERR_DESTROYED: aborted,
  UND_ERR_CLOSED: aborted,
};
