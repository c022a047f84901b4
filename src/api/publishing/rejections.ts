import { logBodyBytes } from "../../core/values/limits.ts";
import type { Bytes, HeaderList, WebhookSource } from "../../core/model/message.ts";
import { canonicalName } from "../../core/values/headers.ts";
import { truncateText } from "../../core/values/name.ts";
import { mayKeepRejection } from "../../core/commands/source.ts";
import { getUnderlying } from "../../store/auditActor.ts";
import type { Store } from "../../store/store.ts";
import { containsToken } from "../settings/forward.ts";
import type { IncomingRequest, RouteContext } from "../route/route.ts";
import type { WebhookCall } from "../webhooks/verification.ts";
import { BoundedMap } from "../../core/values/boundedMap.ts";

/** A call, the source it came to, and its secret. */
export type SourceCall = { source: WebhookSource; secret: string; call: WebhookCall; incoming: IncomingRequest; context: RouteContext };

/** Keeps a call that was not accepted, for the owner of the source. Those that come too fast are counted, and told of with the next that is kept. */
export async function storeRejection({ source, secret, call, incoming, context: { store } }: SourceCall, reason: string): Promise<void> {
  const { account, id } = source;
  if (!mayKeepRejection(source, call.now)) return countUnkept(store, id, 1);
  const others = takeUnkept(store, id);
  const { kept } = await store.execute(
    "keepRejection",
    {
      account,
      id,
      others,
      reason: truncateText(reason, longestReason),
      method: call.method,
      callerIp: incoming.callerIp,
      headers: redactCallHeaders(call.headers, secret),
      size: call.body.length,
      body: redactCallBody(call.body, secret),
      ...(call.headers.length > 2 * maxHeaders || call.headers.some(({ length }) => length > longestValue) ? { cut: true } : {}),
    },
    { canWait: true },
  );
  if (!kept) countUnkept(store, id, others + 1);
}

const longestReason = 1000;

/** How many calls of each source were not kept since the last one that was, by the store they would have gone to. */
const unkeptCounts = new WeakMap<Store, BoundedMap<string, number>>();
const maxCounts = 10_000;

function countUnkept(store: Store, id: string, calls: number): void {
  const storeCounts = unkeptCounts.get(getUnderlying(store)) ?? new BoundedMap<string, number>(maxCounts);
  unkeptCounts.set(getUnderlying(store), storeCounts);
  storeCounts.set(id, (storeCounts.get(id) ?? 0) + calls);
}

/** How many calls to a source this node has not noted yet. */
export const readUnkept = (store: Store, id: string): number => unkeptCounts.get(getUnderlying(store))?.get(id) ?? 0;

/** Those are noted now. */
function takeUnkept(store: Store, id: string): number {
  const count = readUnkept(store, id);
  unkeptCounts.get(getUnderlying(store))?.delete(id);
  return count;
}

const credentials = /^(authorization|proxy-authorization|cookie)$/i;
const maxHeaders = 100;
const longestValue = 1024;

/** The headers of a call, as its owner may see them. */
function redactCallHeaders(rawHeaders: readonly string[], secret: string): HeaderList {
  const headers: [string, string][] = [];
  for (let at = 0; at + 1 < rawHeaders.length && headers.length < maxHeaders; at += 2) {
    const [name = "", value = ""] = [rawHeaders[at], rawHeaders[at + 1]];
    const isSecret = credentials.test(name) || containsToken(value, secret);
    headers.push([canonicalName(name.slice(0, longestValue)), isSecret ? "(not shown)" : value.slice(0, longestValue)]);
  }
  return headers;
}

/** The beginning of a body. Senders that tell of the webhook itself have its URL in there. */
function redactCallBody(body: Bytes, secret: string): Bytes {
  const beginning = Buffer.from(body.subarray(0, logBodyBytes + secret.length)).toString("latin1");
  const masked = Buffer.from(beginning.replaceAll(secret, "*".repeat(secret.length)), "latin1");
  return body.length <= logBodyBytes ? masked : masked.subarray(0, findCharacterEnd(masked, logBodyBytes));
}

/** The last place at or before `end` where a character of UTF-8 begins. */
function findCharacterEnd(bytes: Bytes, end: number): number {
  let at = end;
  while (at > end - 4 && ((bytes[at] ?? 0) & 0xc0) === 0x80) at--;
  return ((bytes[at] ?? 0) & 0xc0) === 0x80 ? end : at;
}
