import type { AccountId, Bytes, Millis } from "../../engine/core/values/basics.ts";
import type { Draft, Key } from "../../engine/core/decision/command.ts";
import type { WebhookSource } from "../../engine/core/model/webhookSource.ts";
import { day } from "../../engine/core/values/time.ts";

/** A rejected call as it arrived. `headers` alternates names and values. The content is stored encrypted. */
export type WholeCall = {
  url: string;
  /** The secret of the source in the URL. */
  secret: string;
  headers: readonly string[];
  body: Bytes;
  callerIp: string | null;
};

/** A rejected call that is kept whole, until `dueAt`. `id` is `<source>/<number of its rejection>`. */
export type KeptCall = { account: AccountId; id: string; dueAt: Millis; time: Millis; whole: WholeCall };

/** How long a rejected call is kept whole. */
export const callKept: Millis = day;
/** The rejected calls that a source keeps whole, and their bytes together. The oldest make room. */
export const maxKeptCalls = 20;
/** The bytes of all kept calls of a source. */
export const maxKeptBytes = 16 * 1024 * 1024;

/** Returns the key of a kept call. */
export const keptCallKey = ({ account, id }: { account: AccountId; id: string }, number: number): Key => [
  account,
  `${id}/${String(number).padStart(12, "0")}`,
];

const readSize = ({ url, headers, body }: WholeCall): number =>
  body.byteLength + url.length + headers.reduce((sum, { length }) => sum + length, 0);

/**
 * Keeps a rejected call whole, if its source keeps such calls and it is not too large. Returns the list of
 * the calls that the source keeps.
 */
export function keepWhole(
  draft: Draft,
  source: WebhookSource,
  { number, whole, now }: { number: number; whole: WholeCall | undefined; now: Millis },
): WebhookSource["keptCalls"] {
  const known = source.keptCalls ?? [];
  const size = whole ? readSize(whole) : 0;
  if (!whole || !source.keepsRejected || size > maxKeptBytes) return source.keptCalls;
  let bytes = size;
  const left = known.toReversed().filter((one, at) => {
    bytes += one.size;
    return one.until > now && at < maxKeptCalls - 1 && bytes <= maxKeptBytes;
  });
  dropKept(draft, source, new Set(known).difference(new Set(left)));
  const [account, id = ""] = keptCallKey(source, number);
  const until = now + callKept;
  draft.put("keptCalls", { account, id, dueAt: until, time: now, whole });
  return [...left.toReversed(), { number, size, until }];
}

/** Removes kept calls of a source. */
export function dropKept(
  draft: Draft,
  source: WebhookSource,
  calls: Iterable<{ number: number }> = source.keptCalls ?? [],
): void {
  for (const { number } of calls) draft.drop("keptCalls", ...keptCallKey(source, number));
}
