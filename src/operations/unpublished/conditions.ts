import type { Condition } from "../../engine/core/explain/condition.ts";
import { formatMany, formatSpan, makeCondition } from "../../engine/core/explain/condition.ts";
import { startOfBucket } from "../../engine/core/accounts/usage.ts";
import { errorCodes } from "../../engine/core/values/errors.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import { minute } from "../../engine/core/values/time.ts";
import type { Store } from "../../engine/store/store.ts";
import { nameSeries } from "./names.ts";
import type { Series } from "./series.ts";
import { minutesKept, readLastHour, toPeriod } from "./series.ts";

/** From this number in an hour on, refused publishes are more than the mistake of one person. */
const manyRefused = 10;
/** Duplicates are unusual if they are at least this many in an hour, and this share of all publishes. */
const manyDuplicates = 10;
const duplicateShare = 0.75;

const tokenReasons: ReadonlySet<string> = new Set(["unauthorized", "forbidden", "expired", "revoked"]);
const words: Readonly<Record<string, string>> = {
  expired: "it has expired",
  revoked: "it was revoked or replaced",
  forbidden: "it may not publish there",
  unauthorized: "it is not valid",
};

/** A series with its name and what it counted within the last hour. */
type Recent = { series: Series; name: string; count: number; since: Millis };

/** Returns the tokens of an account that were refused of late, and the publishes that became no message. */
export async function findUnpublishedConditions(
  store: Pick<Store, "read">,
  account: AccountId,
  now: Millis,
): Promise<Condition[]> {
  const recent = (await store.read.series(account))
    .map((series) => ({ series, count: readLastHour(series, now), since: readSince(series, now) }))
    .filter(({ count }) => count > 0);
  // A source shows the calls that it rejects.
  const publishes = recent.filter(({ series }) => !series.subject.startsWith("src_") || isDuplicate(series));
  if (publishes.length === 0) return [];
  const named = await nameSeries(store, account, publishes);
  const tokens = named.filter(({ series }) => tokenReasons.has(series.reason));
  const refused = named.filter(({ series }) => !tokenReasons.has(series.reason) && !isDuplicate(series));
  const duplicates = named.filter(({ series }) => isDuplicate(series));
  return [
    ...tokens.map((one) => toTokenCondition(one, now)),
    ...[...Map.groupBy(refused, ({ series }) => series.reason)].map(([reason, all]) =>
      toRefusedCondition(reason, all),
    ),
    ...(await findDuplicates(store, { account, duplicates, now })),
  ];
}

const isDuplicate = ({ reason }: Pick<Series, "reason">): boolean => reason === "deduplicated";

const readSince = ({ minutes, firstAt }: Series, now: Millis): Millis => {
  const first = minutes.find(([period]) => period > toPeriod(now - minutesKept, minute));
  return Math.max(firstAt, (first?.[0] ?? 0) * minute);
};

/** A token that never existed is only a note, because anybody can send one. */
function toTokenCondition({ series, name, count, since }: Recent, now: Millis): Condition {
  const { subject, reason, last } = series;
  const isUnknown = subject === "unknown";
  const title = isUnknown ? "Tokens that never existed" : `Token ${name || subject}`;
  const many =
    `${formatMany(count, "request", "requests")} within an hour, ` +
    `the last ${formatSpan(Math.max(0, now - last.at))} ago`;
  return makeCondition({
    ...{ kind: "token.refused", level: isUnknown ? "note" : "problem", subject, since, count },
    text: isUnknown
      ? `${title} were refused: ${many}`
      : `${title} was refused: ${words[reason] ?? reason}; ${many}`,
  });
}

const describeReason = (reason: string): string =>
  Object.hasOwn(errorCodes, reason) ? errorCodes[reason as keyof typeof errorCodes].meaning : reason;

function toRefusedCondition(reason: string, all: readonly Recent[]): Condition {
  const count = all.reduce((sum, one) => sum + one.count, 0);
  return makeCondition({
    ...{ kind: "publishes.dropped", subject: reason, count },
    level: reason === "disk-low" ? "problem" : count < manyRefused ? "note" : "warning",
    since: Math.min(...all.map(({ since }) => since)),
    text:
      `${formatMany(count, "publish was", "publishes were")} refused within an hour: ` +
      describeReason(reason),
  });
}

async function findDuplicates(
  store: Pick<Store, "read">,
  { account, duplicates, now }: { account: AccountId; duplicates: readonly Recent[]; now: Millis },
): Promise<Condition[]> {
  const count = duplicates.reduce((sum, one) => sum + one.count, 0);
  if (count < manyDuplicates) return [];
  const usage = await store.read.usage(account, "1m", startOfBucket("1m", now - minutesKept));
  const accepted = usage.reduce((sum, { messages }) => sum + messages, 0);
  if (count < duplicateShare * (count + accepted)) return [];
  return [
    makeCondition({
      ...{ kind: "publishes.dropped", level: "warning", subject: "deduplicated", count },
      since: Math.min(...duplicates.map(({ since }) => since)),
      text:
        `${formatMany(count, "publish was", "publishes were")} dropped within an hour, because they repeat ` +
        `earlier ones; ${formatMany(accepted, "message was", "messages were")} accepted`,
    }),
  ];
}
