import { z } from "zod";
import type { Point } from "../../engine/core/accounts/statistics.ts";
import { periods, sumPoints, toPeriodRange } from "../../engine/core/accounts/statistics.ts";
import { retentionFor } from "../../engine/core/accounts/retention.ts";
import { formatGate, queueGate } from "../../engine/core/admission/gate.ts";
import type { ActivityMark } from "../../engine/core/explain/activityMarks.ts";
import { listActivityMarks, markKinds } from "../../engine/core/explain/activityMarks.ts";
import type { DrainForecast } from "../../engine/core/explain/drain.ts";
import { forecastDrain } from "../../engine/core/explain/drain.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { minute } from "../../engine/core/values/time.ts";
import type { FieldsOf } from "../../api/fields/field.ts";
import {
  count,
  integer,
  list,
  mark,
  number,
  object,
  optional,
  text,
  time,
  toJson,
  word,
} from "../../api/fields/field.ts";
import { choice } from "../../api/http/parameters.ts";
import { parseName } from "../../api/http/target.ts";
import { readNodes } from "../../api/routes/server/nodes.ts";
import { operatorRoute } from "../../api/route/operator.ts";
import { route } from "../../api/route/route.ts";
import { toSchema } from "../../api/views/fieldSchema.ts";
import type { AttemptPoint } from "./attemptPoints.ts";
import { maxRetried, sampledEntries } from "./attemptPoints.ts";
import { pointFields } from "./fields.ts";
import type { CountUpTo } from "./situation.ts";

const markFields: FieldsOf<ActivityMark> = {
  time: time("When it happened, in Unix milliseconds.", ({ at }) => at),
  kind: word(markKinds)(
    "pause, resume or change: of a queue, a key, a schedule, a source or a URL group. start: of a server.",
    ({ kind }) => kind,
  ),
  text: text("A few words for people.", ({ text }) => text),
};

type ActivityPoint = Point & AttemptPoint;

const activityPointFields: FieldsOf<ActivityPoint> = {
  ...pointFields,
  retried: optional(count)(
    "Failed attempts that the server planned to repeat, as the log has them, counted up to " +
      `${maxRetried}. Absent if the log does not go back that far.`,
    ({ retried }) => retried,
  ),
  p95: optional(count)(
    "The duration that 95 % of the attempts did not exceed, in milliseconds. Attempts are those of the " +
      `newest log entries of the point, ${sampledEntries} of all points together. Absent if there are none.`,
    ({ p95 }) => p95,
  ),
};

type Activity = { points: readonly ActivityPoint[]; marks: readonly ActivityMark[]; step: Millis };

const activityFields: FieldsOf<Activity> = {
  step: integer("The length of a point, in milliseconds.", ({ step }) => step),
  points: list(activityPointFields)("The points, the current one last.", ({ points }) => points),
  marks: list(markFields)("Events that may explain a change of the figures, in order.", ({ marks }) => marks),
};

/** The newest entries of the audit log among which the marks are. */
const maxEntries = 200;

const activity = route({
  method: "GET",
  path: "/v2/activity",
  tag: "Overview",
  summary: "Read the outcomes of messages over time",
  about:
    "Returns how many messages were accepted, delivered, failed and cancelled in each point of a period. " +
    "A period has 60 points; the period of 30 days has 240 points of three hours each. The last point is " +
    "the current one, which is incomplete. Marks say when something was paused, resumed or changed, and " +
    `when a server started: those among the newest ${maxEntries} entries of the audit log.`,
  query: z.object({
    period: choice(periods)
      .default("1h")
      .describe("The length of the time that the points cover, up to now."),
  }),
  answers: { 200: { about: "The activity of the account.", schema: toSchema(activityFields) } },
  refusals: ["invalid"],
  handle: async ({ account, query, context }) => {
    const { store, now } = context;
    const range = toPeriodRange(query.period, now());
    const { log } = retentionFor(account, context.retention);
    const [usage, attempts, audit, nodes] = await Promise.all([
      store.read.usage(account.id, range.size, range.from),
      store.read.attemptPoints(account.id, { ...range, logFrom: now() - log }),
      store.read.audit({
        ...{ account: account.id, filter: { from: range.from }, cursor: null, count: maxEntries },
      }),
      readNodes(context),
    ]);
    const marks = listActivityMarks(audit.entries, nodes, range.from);
    const points = sumPoints(usage, range).map((point, at) =>
      Object.assign(point, attempts[at] ?? { retried: null, p95: null }),
    );
    return { status: 200, body: toJson(activityFields, { points, marks, step: range.step }) };
  },
});

const forecastFields: FieldsOf<DrainForecast & { waiting: number }> = {
  waiting: count("The messages that wait for a slot of the queue.", ({ waiting }) => waiting),
  publishedPerMinute: optional(number)(
    "The messages that were published to the queue per minute, as the mean of the last 3 minutes. " +
      "Absent if the queue is too busy to be counted.",
    ({ publishedPerMinute }) => publishedPerMinute,
  ),
  sentPerMinute: optional(number)(
    "The attempts per minute, in the same time. Absent if the queue is too busy to be counted.",
    ({ sentPerMinute }) => sentPerMinute,
  ),
  emptyIn: optional(integer)(
    "The time until no message waits, at this pace, in milliseconds. " +
      "Absent if the backlog does not shrink, or if the pace is not known.",
    ({ emptyIn }) => emptyIn,
  ),
  faster: optional(
    object<NonNullable<DrainForecast["faster"]>>({
      parallelism: count("The proposed parallelism.", ({ parallelism }) => parallelism),
      emptyIn: integer("The time until no message waits, in milliseconds.", ({ emptyIn }) => emptyIn),
    }),
  )(
    "The forecast with more parallelism, if the queue needs more than 5 minutes. The destination must stay " +
      "as fast as it is.",
    ({ faster }) => faster,
  ),
};

const forecast = route({
  method: "GET",
  path: "/v2/queues/{name}/forecast",
  tag: "Queues",
  summary: "Forecast when a queue is empty",
  about:
    "Returns the pace at which the queue gets and sends messages, and when none will wait. A message that " +
    "is sent again counts as sent each time.",
  params: z.object({ name: z.string() }),
  answers: { 200: { about: "The forecast.", schema: toSchema(forecastFields) } },
  refusals: ["not-found"],
  handle: async ({ account, params: { name }, context: { store, now } }) => {
    const queue = parseName("queue", name);
    const [limiter, flow] = await Promise.all([
      store.read.findResource("limiters", account.id, formatGate(queueGate(queue))),
      store.read.queueFlow(account.id, queue, now()),
    ]);
    if (!limiter) throw new Refusal("not-found", "queue: does not exist; GET /v2/queues lists the queues");
    const { waiting, parallelism } = limiter;
    const found = forecastDrain({ waiting, parallelism, flow });
    return { status: 200, body: toJson(forecastFields, { ...found, waiting }) };
  },
});

/** The accounts that are looked at, and how many of them at once. */
const maxAccounts = 1_000;
const accountsAtOnce = 20;
/** The accounts that are shown. */
const maxShown = 20;
const activityMinutes = 15;

/** `before`: the counts of the same number of minutes before those of `counts`. */
type BusyAccount = {
  account: Account;
  counts: Point["counts"];
  before: Point["counts"];
  inFlight: number;
  held: CountUpTo;
};

const sumAccepted = ({ messages, workflowMessages }: Point["counts"]): number => messages + workflowMessages;

const busyFields: FieldsOf<BusyAccount> = {
  accountId: text("The id of the account.", ({ account }) => account.id),
  name: text("The name of the account.", ({ account }) => account.name),
  messages: count(
    `Messages and callbacks that were accepted, and retries, in the last ${activityMinutes} minutes.`,
    ({ counts }) => sumAccepted(counts),
  ),
  messagesBefore: count(
    `Messages and callbacks that were accepted, and retries, in the ${activityMinutes} minutes before those.`,
    ({ before }) => sumAccepted(before),
  ),
  delivered: count(
    "Messages that were delivered.",
    ({ counts }) => counts.delivered + counts.workflowDelivered,
  ),
  failed: count("Messages that failed for good.", ({ counts }) => counts.failed + counts.workflowFailed),
  inFlight: count("Deliveries in flight, counted up to 10,000.", ({ inFlight }) => inFlight),
  held: count("Messages that are due and wait at a gate.", ({ held }) => held.count),
  heldMore: mark("Present if more are held than were counted.", ({ held }) => held.more),
};

const busyAccounts = operatorRoute({
  method: "GET",
  path: "/v2/admin/activity",
  tag: "Administration",
  summary: "List the busiest accounts",
  about:
    `Lists at most ${maxShown} accounts with messages in the last ${activityMinutes} minutes, the busiest ` +
    `first. Only the first ${maxAccounts} accounts are looked at.`,
  answers: {
    200: {
      about: "The accounts.",
      schema: z.object({ accounts: z.array(toSchema(busyFields)).describe("The accounts.") }),
    },
  },
  refusals: [],
  handle: async ({ context: { store, now } }) => {
    const at = now();
    const step = activityMinutes * minute;
    const from = (Math.floor(at / minute) - 2 * activityMinutes + 1) * minute;
    const all = (await store.read.accounts()).slice(0, maxAccounts);
    const counted: Pick<BusyAccount, "account" | "counts" | "before">[] = [];
    for (let start = 0; start < all.length; start += accountsAtOnce)
      counted.push(
        ...(
          await Promise.all(
            all.slice(start, start + accountsAtOnce).map(async (account) => {
              const usage = await store.read.usage(account.id, "1m", from);
              const [before, last] = sumPoints(usage, { from, step, points: 2 });
              return before && last ? [{ account, counts: last.counts, before: before.counts }] : [];
            }),
          )
        ).flat(),
      );
    const sum = ({ counts }: Pick<BusyAccount, "counts">): number => sumAccepted(counts);
    const busiest = counted.filter((one) => sum(one) > 0).toSorted((a, b) => sum(b) - sum(a));
    const shown = await Promise.all(
      busiest.slice(0, maxShown).map(async (one): Promise<BusyAccount> => {
        const [inFlight, held] = await Promise.all([
          store.read.countInFlight(one.account.id, at),
          store.read.heldMessages(one.account.id),
        ]);
        return Object.assign(one, { inFlight, held });
      }),
    );
    return { status: 200, body: { accounts: shown.map((one) => toJson(busyFields, one)) } };
  },
});

/** The routes that show activity over time, and by account. */
export const activities = [activity, forecast, busyAccounts];
