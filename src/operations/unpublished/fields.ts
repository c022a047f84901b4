import type { FieldsOf } from "../../api/fields/field.ts";
import { count, list, longText, object, optional, text, texts, time, word } from "../../api/fields/field.ts";
import { hour, minute } from "../../engine/core/values/time.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { Sender } from "./names.ts";
import { subjectKinds, toSubjectKind } from "./names.ts";
import type { Bucket, Series } from "./series.ts";
import { maxIdLength, readLastHour, toPeriod } from "./series.ts";

/** A series as it is shown at a time. */
export type ShownSeries = Sender & { series: Series; now: Millis };

type ShownBucket = { start: Millis; count: number };

const bucketFields: FieldsOf<ShownBucket> = {
  start: time("The start of the period, in Unix milliseconds.", ({ start }) => start),
  count: count("How many.", ({ count }) => count),
};

const showBuckets = (buckets: readonly Bucket[], length: Millis): ShownBucket[] =>
  buckets.map(([period, count]) => ({ start: period * length, count }));

/** The fields of a series of what became no message. */
export const seriesFields = {
  kind: word(subjectKinds)(
    "The kind of sender. session: a session of the web console. unknown: a token that never existed, or " +
      "none. other: all that is beyond the limit of series.",
    ({ series }) => toSubjectKind(series.subject),
  ),
  subject: text(
    "The id of the token or source. main and readOnly are the tokens of the account itself.",
    ({ series }) => series.subject,
  ),
  name: longText("The name of the token or source. It may be empty.", ({ name }) => name),
  reason: text(
    "The code of the error, or deduplicated. Of tokens also: expired, revoked.",
    ({ series }) => series.reason,
  ),
  lastHour: count(
    "How many within the last hour.",
    ({ series, now }) => readLastHour(series, now),
    "LAST HOUR",
  ),
  total: count("How many since the series began.", ({ series }) => series.total),
  firstAt: time("When the first one came, in Unix milliseconds.", ({ series }) => series.firstAt, "FIRST"),
  lastAt: time("When the last one came, in Unix milliseconds.", ({ series }) => series.last.at, "LAST"),
  address: optional(text)(
    "The IP address that sent the last one, if it is known.",
    ({ series }) => series.last.address,
  ),
  messageId: optional(text)(
    "The earlier message of the last duplicate.",
    ({ series }) => series.last.messageId,
    "EARLIER MESSAGE",
  ),
  deduplicationId: optional(text)(
    `The deduplication id of the last duplicate, cut to ${maxIdLength} characters. ` +
      "Absent if its content was compared.",
    ({ series }) => series.last.deduplicationId,
    "DEDUPLICATION ID",
  ),
  rights: optional(
    object<NonNullable<Sender["rights"]>>({
      verbs: texts("Its verbs.", ({ verbs }) => verbs),
      destinations: texts("Its destinations. Without them, all.", ({ destinations }) => destinations),
    }),
  )("The rights of a token that was revoked, if they are known.", ({ rights }) => rights),
  minutes: list(bucketFields)("The minutes of the last hour with any, the oldest first.", ({ series, now }) =>
    showBuckets(
      series.minutes.filter(([period]) => period > toPeriod(now - hour, minute)),
      minute,
    ),
  ),
  hours: list(bucketFields)("The hours of the last 7 days with any, the oldest first.", ({ series }) =>
    showBuckets(series.hours, hour),
  ),
} satisfies FieldsOf<ShownSeries>;
