import { logBodyBytes } from "../../core/values/limits.ts";
import type { Bytes, HeaderList, Source } from "../../core/model/message.ts";
import { canonicalName } from "../../core/values/headers.ts";
import { shortText } from "../../core/values/name.ts";
import { mayKeep } from "../../core/commands/source.ts";
import { underlying } from "../../store/audited.ts";
import type { Store } from "../../store/store.ts";
import { tells } from "../settings/forward.ts";
import type { Incoming, Parts } from "../route/route.ts";
import type { WebhookCall } from "../webhooks/verification.ts";
import { BoundedMap } from "../../core/values/boundedMap.ts";

/** A call, the source it came to, and its secret. */
export type SourceCall = { source: Source; secret: string; call: WebhookCall; incoming: Incoming; parts: Parts };

/** Keeps a call that was not accepted, for the owner of the source. Those that come too fast are counted, and told of with the next that is kept. */
export async function keepRejected({ source, secret, call, incoming, parts: { store } }: SourceCall, reason: string): Promise<void> {
  const { account, id } = source;
  if (!mayKeep(source, call.now)) return overlook(store, id, 1);
  const others = overlooked(store, id);
  const { kept } = await store.execute(
    "keepRejection",
    {
      ...{ account, id, others, reason: shortText(reason, longestReason), method: call.method, callerIp: incoming.callerIp },
      ...{ headers: shownHeaders(call.headers, secret), size: call.body.length, body: shownBody(call.body, secret) },
      ...(call.headers.length > 2 * mostHeaders || call.headers.some(({ length }) => length > longestValue) ? { cut: true } : {}),
    },
    { canWait: true },
  );
  if (!kept) overlook(store, id, others + 1);
}

const longestReason = 1000;

/** How many calls of each source were not kept since the last one that was, by the store they would have gone to. */
const counts = new WeakMap<Store, BoundedMap<string, number>>();
const mostCounts = 10_000;

function overlook(store: Store, id: string, calls: number): void {
  const ofStore = counts.get(underlying(store)) ?? new BoundedMap<string, number>(mostCounts);
  counts.set(underlying(store), ofStore);
  ofStore.set(id, (ofStore.get(id) ?? 0) + calls);
}

/** How many calls to a source this node has not noted yet. */
export const overlookedSoFar = (store: Store, id: string): number => counts.get(underlying(store))?.get(id) ?? 0;

/** Those are noted now. */
function overlooked(store: Store, id: string): number {
  const count = overlookedSoFar(store, id);
  counts.get(underlying(store))?.delete(id);
  return count;
}

const credentials = /^(authorization|proxy-authorization|cookie)$/i;
const mostHeaders = 100;
const longestValue = 1024;

/** The headers of a call, as its owner may see them. */
function shownHeaders(rawHeaders: readonly string[], secret: string): HeaderList {
  const headers: [string, string][] = [];
  for (let at = 0; at + 1 < rawHeaders.length && headers.length < mostHeaders; at += 2) {
    const [name = "", value = ""] = [rawHeaders[at], rawHeaders[at + 1]];
    const isSecret = credentials.test(name) || tells(value, secret);
    headers.push([canonicalName(name.slice(0, longestValue)), isSecret ? "(not shown)" : value.slice(0, longestValue)]);
  }
  return headers;
}

/** The beginning of a body. Senders that tell of the webhook itself have its URL in there. */
function shownBody(body: Bytes, secret: string): Bytes {
  const beginning = Buffer.from(body.subarray(0, logBodyBytes + secret.length)).toString("latin1");
  const masked = Buffer.from(beginning.replaceAll(secret, "*".repeat(secret.length)), "latin1");
  return body.length <= logBodyBytes ? masked : masked.subarray(0, wholeCharacters(masked, logBodyBytes));
}

/** The last place at or before `end` where a character of UTF-8 begins. */
function wholeCharacters(bytes: Bytes, end: number): number {
  let at = end;
  while (at > end - 4 && ((bytes[at] ?? 0) & 0xc0) === 0x80) at--;
  return ((bytes[at] ?? 0) & 0xc0) === 0x80 ? end : at;
}
