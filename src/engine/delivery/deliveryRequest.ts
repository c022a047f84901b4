import { hash } from "node:crypto";
import { brandNames } from "../core/values/brand.ts";
import { deliveryHeaders, standardHeaders, type DeliveryHeaderName } from "../core/values/deliveryHeaders.ts";
import { connectionHeaders, headerValue, toLatin1 } from "../core/values/headers.ts";
import type { Brand, IdKind } from "../core/values/basics.ts";
import type { Delivery } from "../core/model/delivery.ts";
import { toChildParent, type TraceContext } from "../core/values/traceContext.ts";
import { type ParsedUrl, requestPath } from "../core/values/url.ts";
import type { Clock } from "../clock/clock.ts";
import { Unsendable } from "./deliveryError.ts";
import type { HttpRequest } from "./http/connection.ts";
import { makeAttemptToken } from "./attemptToken.ts";
import { hashBody, signJwt, signStandard } from "./signature.ts";

/** Sources for a request besides the message: the time, the server's region and new ids for signatures. */
type RequestSource = { clock: Clock; region: string; newId(kind: IdKind): string };

/** Returns the request as it is sent. Throws an `Unsendable` if HTTP cannot carry it. */
export function composeRequest(
  delivery: Delivery,
  url: ParsedUrl | null,
  options: RequestSource,
): { request: HttpRequest; to: ParsedUrl } {
  const { history, message } = delivery;
  const { method, url: text } = message;
  if (url === null) throw new Unsendable("the URL is not valid");
  if (url.protocol !== "http:" && url.protocol !== "https:")
    throw new Unsendable("the URL does not begin with http:// or https://");
  const headers = makeHeaders(delivery, url, options);
  if (!tokenPattern.test(method)) throw new Unsendable("the method cannot be sent over HTTP");
  const body = history?.parts ?? [message.body];
  return { request: { method, path: requestPath(text, url), headers, body }, to: url };
}

/**
 * Returns names and values in turn: first the message's own headers, without reserved ones, then those of
 * Waypost, unless the message hides them.
 */
function makeHeaders(delivery: Delivery, url: ParsedUrl, options: RequestSource): string[] {
  const { message, history } = delivery;
  const isHidden = message.hideHeaders === true;
  const standardKeys = isHidden ? null : delivery.standardKeys;
  const headers: string[] = [];
  const trace = isHidden ? null : findTrace(message);
  let agent: string | null = isHidden ? plainUserAgent : brandNames[message.brand].userAgent;
  let credentials = url.username === "" && url.password === "" ? null : formatBasic(url);
  for (const [name, value] of message.headers) {
    const lowerName = name.toLowerCase();
    if (trace && traceHeaderNames.has(lowerName)) continue;
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
  if (trace) headers.push(...makeTraceHeaders(trace, delivery));
  for (const brand of isHidden ? [] : listBrands(message))
    headers.push(...makeOwnHeaders(delivery, brand, options));
  if (standardKeys) {
    const body = history?.parts ?? [message.body];
    headers.push(...signStandard({ id: message.id, body, keys: standardKeys, now: options.clock.now() }));
  }
  for (let at = 0; at + 1 < headers.length; at += 2)
    if (invalidValuePattern.test(headers[at + 1] ?? "")) throw makeHeaderError(headers[at] ?? "");
  return headers;
}

/** The `User-Agent` of a message that hides where it comes from. */
const plainUserAgent = "Webhook";

const traceHeaderNames: ReadonlySet<string> = new Set(["traceparent", "tracestate"]);

/**
 * Returns the trace of a message, unless the publisher has set another traceparent as a header of the
 * message.
 */
function findTrace({ trace, headers }: Delivery["message"]): TraceContext | null {
  if (trace === undefined) return null;
  const own = headerValue(headers, "Traceparent");
  return own === undefined || own === trace.parent ? trace : null;
}

/** Returns the headers that make an attempt a child of the publish in its trace. */
const makeTraceHeaders = (trace: TraceContext, { message, attempt }: Delivery): string[] => [
  "traceparent",
  toChildParent(trace, toSpanId(message.id, attempt)),
  ...(trace.state === undefined ? [] : ["tracestate", trace.state]),
];

/** Returns the id of the span of an attempt. No two attempts have the same. */
export const toSpanId = (messageId: string, attempt: number): string =>
  hash("sha256", `${messageId} ${attempt}`, "hex").slice(0, 16);

const makeHeaderError = (name: string): Unsendable =>
  new Unsendable(`the header ${JSON.stringify(name.slice(0, 100))} cannot be sent over HTTP`);

/**
 * Returns the brands whose headers a message has. A workflow started with `Svc-` headers gets both, because
 * its endpoint may use a client that knows only `Upstash-`.
 */
const listBrands = (message: Delivery["message"]): readonly Brand[] =>
  hasBothBrands(message) ? ["svc", "upstash"] : [message.brand];

const hasBothBrands = ({ brand, run }: Delivery["message"]): boolean =>
  run !== undefined && run.kind !== "call" && brand === "svc";

function findTwinHeader(message: Delivery["message"], name: string): string | null {
  const twin =
    hasBothBrands(message) && /^Svc-(Workflow-|Label$)/.test(name) ? name.replace("Svc-", "Upstash-") : null;
  return twin !== null && headerValue(message.headers, twin) === undefined ? twin : null;
}

function makeOwnHeaders(
  { message, attempt, uncounted = 0, signingKey, history }: Delivery,
  brand: Brand,
  { clock, region, newId }: RequestSource,
): string[] {
  const names = ownNames[brand];
  const headers: string[] = [];
  const { url: destination } = message;
  if (signingKey !== null) {
    const bodyHash = history ? history.hash() : hashBody(message.body);
    headers.push(
      names.signature,
      signJwt({ brand, url: destination, bodyHash, signingKey, now: clock.now(), id: newId("jwt") }),
    );
  }
  headers.push(names.messageId, message.id, names.retried, String(attempt - uncounted));
  if (message.ackKey !== undefined) headers.push(names.attempt, makeAttemptToken(message, attempt));
  if (message.callerIp !== null) headers.push(names.callerIp, message.callerIp);
  if (message.group !== null) headers.push(names.topicName, message.group);
  if (message.scheduleId !== null) headers.push(names.scheduleId, message.scheduleId);
  // A third party must not learn about the run: if it is a workflow itself, this message does not belong to
  // it.
  if (message.run && message.run.kind !== "call")
    headers.push(names.runId, toLatin1(message.run.runId), names.runCreatedAt, String(message.run.createdAt));
  headers.push(names.region, region);
  return headers;
}

function formatBasic({ username, password }: ParsedUrl): string {
  const credentials = `${decodeComponent(username)}:${decodeComponent(password)}`;
  return `Basic ${Buffer.from(credentials).toString("base64")}`;
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
    Object.entries(deliveryHeaders).map(([header, { name }]) => [
      header,
      `${brandNames[brand].prefix}-${name}`,
    ]),
  ) as Record<DeliveryHeaderName, string>;

const ownNames: Record<Brand, ReturnType<typeof makeHeaderNames>> = {
  svc: makeHeaderNames("svc"),
  upstash: makeHeaderNames("upstash"),
};

/**
 * Headers of the publisher that are not forwarded, because they belong to the connection or would imitate
 * Waypost's own headers.
 */
const reserved: ReadonlySet<string> = new Set([
  ...connectionHeaders,
  ...Object.values(ownNames).flatMap((names) => Object.values(names).map((name) => name.toLowerCase())),
]);

/**
 * Headers that are also reserved if Standard Webhooks signatures are on. Otherwise, such headers of the
 * publisher are forwarded.
 */
const standardHeaderNames: ReadonlySet<string> = new Set(Object.keys(standardHeaders));

/**
 * Token and field value of RFC 9110, 5.6.2 and 5.5. Checked here so that the error in the log names the
 * header.
 */
const tokenPattern = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const invalidValuePattern = /[^\t\x20-\x7e\x80-\xff]/;
