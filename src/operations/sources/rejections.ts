import { logBodyBytes } from "../../engine/core/values/limits.ts";
import type { Bytes, HeaderList } from "../../engine/core/values/basics.ts";
import type { WebhookSource } from "../../engine/core/model/webhookSource.ts";
import { canonicalName } from "../../engine/core/values/headers.ts";
import { truncateText } from "../../engine/core/values/name.ts";
import { mayKeepRejection } from "./commands.ts";
import { getUnderlying } from "../../engine/store/auditActor.ts";
import type { Store } from "../../engine/store/store.ts";
import { containsToken } from "../../api/settings/forward.ts";
import type { IncomingRequest, RouteContext } from "../../api/route/route.ts";
import type { WebhookCall } from "./schemes/verification.ts";
import { BoundedMap } from "../../engine/core/caches/boundedMap.ts";

/** A call to a source, with the source and its secret. */
export type SourceCall = {
  source: WebhookSource;
  secret: string;
  call: WebhookCall;
  incoming: IncomingRequest;
  context: RouteContext;
};

/**
 * Keeps a rejected call for the owner of the source. If calls arrive too fast, some are only counted. The
 * next call that is kept has the number of these.
 */
export async function storeRejection(
  { source, secret, call, incoming, context }: SourceCall,
  reason: string,
): Promise<void> {
  const { store } = context;
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
      ...(call.headers.length > 2 * maxHeaders || call.headers.some(({ length }) => length > longestValue)
        ? { cut: true }
        : {}),
      ...(source.keepsRejected && call.method === "POST"
        ? {
            whole: {
              url: call.url,
              secret,
              headers: [...call.headers],
              body: call.body,
              callerIp: incoming.callerIp,
            },
          }
        : {}),
    },
    { canWait: true },
  );
  if (!kept) countUnkept(store, id, others + 1);
  else if (source.keepsRejected) context.wakeKeptCalls?.();
}

const longestReason = 1000;

/** The number of rejected calls since the last call that was kept, by store and source. */
const unkeptCounts = new WeakMap<Store, BoundedMap<string, number>>();
const maxCounts = 10_000;

function countUnkept(store: Store, id: string, calls: number): void {
  const storeCounts = unkeptCounts.get(getUnderlying(store)) ?? new BoundedMap<string, number>(maxCounts);
  unkeptCounts.set(getUnderlying(store), storeCounts);
  storeCounts.set(id, (storeCounts.get(id) ?? 0) + calls);
}

/** Returns how many rejected calls to a source this node has counted and not stored yet. */
export const readUnkept = (store: Store, id: string): number =>
  unkeptCounts.get(getUnderlying(store))?.get(id) ?? 0;

/** Returns the number of calls that were not kept, and sets it to 0. */
function takeUnkept(store: Store, id: string): number {
  const count = readUnkept(store, id);
  unkeptCounts.get(getUnderlying(store))?.delete(id);
  return count;
}

const credentials = /^(authorization|proxy-authorization|cookie)$/i;
const maxHeaders = 100;
const longestValue = 1024;

/**
 * Returns the headers of a call as the owner of the source may see them: shortened, and without credentials.
 */
export function redactCallHeaders(rawHeaders: readonly string[], secret: string): HeaderList {
  const headers: [string, string][] = [];
  for (let at = 0; at + 1 < rawHeaders.length && headers.length < maxHeaders; at += 2) {
    const name = rawHeaders[at] ?? "";
    const value = rawHeaders[at + 1] ?? "";
    const isSecret = credentials.test(name) || containsToken(value, secret);
    headers.push([
      canonicalName(name.slice(0, longestValue)),
      isSecret ? "(not shown)" : value.slice(0, longestValue),
    ]);
  }
  return headers;
}

/**
 * Returns the beginning of a body, with the secret of the source masked. Some senders send events about the
 * webhook itself. Such events contain its URL, and therefore the secret.
 */
function redactCallBody(body: Bytes, secret: string): Bytes {
  const masked = maskSecret(body.subarray(0, logBodyBytes + secret.length), secret);
  return body.length <= logBodyBytes ? masked : masked.subarray(0, findCharacterEnd(masked, logBodyBytes));
}

/** Returns a body with the secret of its source masked. */
export const maskSecret = (body: Bytes, secret: string): Bytes =>
  Buffer.from(Buffer.from(body).toString("latin1").replaceAll(secret, "*".repeat(secret.length)), "latin1");

/** Returns the last position at or before `end` where a UTF-8 character begins. */
function findCharacterEnd(bytes: Bytes, end: number): number {
  let at = end;
  while (at > end - 4 && ((bytes[at] ?? 0) & 0xc0) === 0x80) at--;
  return ((bytes[at] ?? 0) & 0xc0) === 0x80 ? end : at;
}
