import type { AccountId, MessageId, Millis } from "../../engine/core/values/basics.ts";
import { day, hour, minute } from "../../engine/core/values/time.ts";

/** The number of a period since 1970, and its count. */
export type Bucket = readonly [period: number, count: number];

/** The last thing that a series counted. */
type Last = {
  at: Millis;
  /** The address of the caller. */
  address: string | null;
  /** The earlier message, if it was a duplicate. */
  messageId?: MessageId;
  /** The deduplication id of a duplicate, cut to `maxIdLength` characters. */
  deduplicationId?: string;
};

/** The characters of a deduplication id that a series keeps. */
export const maxIdLength = 200;

/** The requests of one subject that for one reason never became a message. */
export type Series = {
  account: AccountId;
  id: string;
  /** When the series may be removed. */
  dueAt: Millis;
  subject: string;
  reason: string;
  total: number;
  firstAt: Millis;
  last: Last;
  /** Counts by minute, of the last hour, and by hour, of the last week. The oldest are first. */
  minutes: readonly Bucket[];
  hours: readonly Bucket[];
};

/** The counts of a node since it last stored its counts. */
export type Increment = Pick<Series, "subject" | "reason" | "firstAt" | "minutes" | "last">;

/** The series that an account may have. All that comes then is counted in one more. */
export const maxSeries = 100;
/** The subject and the reason of what is counted together, because there are too many series. */
export const other = "other";
/** How long a series is kept after it last counted anything. It is also how far back its hours go. */
const seriesKept: Millis = 7 * day;
/** How far back the minutes go. */
export const minutesKept: Millis = hour;

/** Returns the id of a series. */
export const toSeriesId = ({ subject, reason }: Pick<Series, "subject" | "reason">): string =>
  `${subject}/${reason}`;

/** Returns the number of the period of a length that contains a time. */
export const toPeriod = (at: Millis, length: Millis): number => Math.floor(at / length);

/** Returns buckets with others added, without those before a period. */
function addBuckets(buckets: readonly Bucket[], added: readonly Bucket[], first: number): readonly Bucket[] {
  const sums = new Map<number, number>();
  for (const [period, count] of [...buckets, ...added])
    if (period >= first) sums.set(period, (sums.get(period) ?? 0) + count);
  return [...sums].toSorted(([one], [two]) => one - two);
}

/** Returns how many buckets count together, from a period on. */
const sumBuckets = (buckets: readonly Bucket[], first = 0): number =>
  buckets.reduce((sum, [period, count]) => (period < first ? sum : sum + count), 0);

/** Returns how many a series counted within the last hour. */
export const readLastHour = ({ minutes }: Pick<Series, "minutes">, now: Millis): number =>
  sumBuckets(minutes, toPeriod(now - minutesKept, minute) + 1);

/** Returns a series with counts added. `series`: undefined if there is none yet. */
export function addToSeries(
  account: AccountId,
  { series, increment }: { series: Series | undefined; increment: Increment },
  now: Millis,
): Series {
  const { subject, reason, firstAt, minutes, last } = increment;
  const before = series ?? { total: 0, firstAt, last, minutes: [], hours: [] };
  const hours = minutes.map(([period, count]): Bucket => [toPeriod(period * minute, hour), count]);
  return {
    ...{ account, id: toSeriesId(increment), subject, reason },
    firstAt: before.firstAt,
    dueAt: now + seriesKept,
    total: before.total + sumBuckets(minutes),
    last: last.at >= before.last.at ? last : before.last,
    minutes: addBuckets(before.minutes, minutes, toPeriod(now - minutesKept, minute) + 1),
    hours: addBuckets(before.hours, hours, toPeriod(now - seriesKept, hour) + 1),
  };
}

/** Returns two increments of the same series together. */
export const joinIncrements = (one: Increment, two: Increment): Increment => ({
  ...one,
  firstAt: Math.min(one.firstAt, two.firstAt),
  minutes: addBuckets(one.minutes, two.minutes, 0),
  last: two.last.at >= one.last.at ? two.last : one.last,
});
