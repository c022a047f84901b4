import type { AccountId } from "../../../src/engine/core/values/basics.ts";
import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import type { CommandCall } from "../../../src/engine/store/store.ts";
import type { RandomSource } from "../randomSource.ts";
import type { ClientState } from "./clients.ts";
import { groups, keys, queues } from "./clients.ts";
import { reusedRunIds } from "./runClients.ts";
import type { Tables } from "../storage/changes.ts";

/** The schedules of each account. */
export const schedules = ["schedule-1", "schedule-2"] as const;

/** Returns a random change of an account's queues, keys, groups or schedules. */
export function randomSetUp(
  random: RandomSource,
  { account }: ClientState,
  of: { input: MessageInput; hosts: readonly string[]; tables: Tables },
): CommandCall {
  const name = random.of(queues);
  const key = random.of(keys);
  const group = random.of(groups);
  const id = random.isHit(0.5) ? `queue:${name}` : `key:${key}`;
  const schedule = { account, id: random.of(schedules) };
  const { body, ...sent } = of.input;
  const isToGroup = random.isHit(0.4);
  const input = { ...sent, notBefore: null, ...(isToGroup ? { url: "", group } : {}) };
  const endpoint = () => ({
    name: random.isHit(0.5) ? `n${random.integerBetween(1, 4)}` : null,
    url: `https://${random.of(of.hosts)}/group`,
  });
  const calls: (() => CommandCall)[] = [
    () => ({ name: "pauseLimiter", input: { account, id } }),
    () => ({ name: "resumeLimiter", input: { account, id } }),
    () => ({
      name: "resumeLimiter",
      input: { account, id: findPausedWithWaitlist(of.tables, account) ?? id },
    }),
    () => ({
      name: "upsertQueue",
      input: {
        account,
        name,
        parallelism: random.integerBetween(1, 3),
        ...(random.isHit(0.3) ? { paused: random.isHit(0.5) } : {}),
      },
    }),
    () => ({ name: "deleteQueue", input: { account, name, slots: listSlots(of.tables, account, name) } }),
    () => ({ name: "pinFlowControl", input: { account, key, parallelism: random.integerBetween(1, 3) } }),
    () => ({
      name: "pinFlowControl",
      input: { account, key, rate: random.integerBetween(1, 3), period: random.of([700, 5_000]) },
    }),
    () => ({
      name: "unpinFlowControl",
      input: { account, key, parallelism: random.isHit(0.5), rate: random.isHit(0.5) },
    }),
    () => ({ name: "resetRate", input: { account, key } }),
    () => ({
      name: "changeAccount",
      input: { account, change: { limits: makeDeliveryLimits(random.integerBetween(1, 4), random) } },
    }),
    () => ({
      name: "changeAccount",
      input: {
        account,
        change: { limits: random.isHit(0.5) ? noDeliveryLimits : makeDeliveryLimits(1, random) },
      },
    }),
    () => ({
      name: "changeAccount",
      input: {
        account,
        change: { limits: { deadLetters: random.integerBetween(1, 3), logEntries: random.of([5, 50]) } },
      },
    }),
    () => ({ name: "changeAccount", input: { account, change: { budget: random.of([0, 40, 150]) } } }),
    () => ({ name: "addEndpoints", input: { account, name: group, endpoints: [endpoint(), endpoint()] } }),
    () => ({ name: "addEndpoints", input: { account, name: group, endpoints: [endpoint()] } }),
    () => ({ name: "removeEndpoints", input: { account, name: group, endpoints: [endpoint()] } }),
    () => ({ name: "deleteGroup", input: { account, name: group } }),
    () => ({
      name: "createSchedule",
      input: { ...schedule, cron: random.of(crons), messageInput: input, body },
    }),
    () => ({
      name: "createSchedule",
      input: { ...schedule, cron: random.of(crons), messageInput: input, body },
    }),
    () => ({ name: "pauseSchedule", input: schedule }),
    () => ({ name: "resumeSchedule", input: schedule }),
    () => ({ name: "deleteSchedule", input: schedule }),
  ];
  return random.of(calls)();
}

/** Returns random account limits: in total, per endpoint, or both. */
const makeDeliveryLimits = (max: number, random: RandomSource): DeliveryLimits => ({
  ...noDeliveryLimits,
  ...random.of([
    { globalParallelism: max },
    { parallelism: max },
    { globalParallelism: max + 1, parallelism: max },
  ]),
});

type DeliveryLimits = { globalParallelism: number | null; parallelism: number | null };
const noDeliveryLimits: DeliveryLimits = { globalParallelism: null, parallelism: null };

/**
 * Returns the calls that set up an account at the beginning. One account begins with a limit per endpoint.
 */
export const prepare = (
  account: AccountId,
  { input, hosts }: { input: MessageInput; hosts: readonly string[] },
): CommandCall[] => {
  const endpoints = hosts.slice(0, 3).map((host) => ({ name: null, url: `https://${host}/group` }));
  const { body, ...sent } = input;
  const toGroup = { ...sent, notBefore: null, url: "", group: groups[0] };
  const limits = { ...noDeliveryLimits, parallelism: account === "acme" ? 2 : null };
  return [
    { name: "changeAccount", input: { account, change: { limits } } },
    { name: "addEndpoints", input: { account, name: groups[0], endpoints } },
    { name: "upsertQueue", input: { account, name: queues[0], parallelism: 2 } },
    {
      name: "createSchedule",
      input: { account, id: schedules[0], cron: crons[1], messageInput: toGroup, body },
    },
  ];
};

/** Returns a paused limiter in which messages wait. */
const findPausedWithWaitlist = (tables: Tables, account: AccountId): string | undefined =>
  [...tables.limiters.values()].find(
    (limiter) => limiter.account === account && limiter.paused && limiter.waiting > 0,
  )?.id;

const crons = ["* * * * *", "*/2 * * * *", "*/15 * * * *"] as const;

/** Returns the calls that release everything that is held back, and stop everything that repeats. */
export const release = (account: AccountId): CommandCall[] => [
  // A message that came too late for one limiter may have changed the order in another.
  { name: "cancelRuns", input: { account, runIds: reusedRunIds } },
  ...[...queues.map((name) => `queue:${name}`), ...keys.map((key) => `key:${key}`)].map(
    (id): CommandCall => ({
      name: "resumeLimiter",
      input: { account, id },
    }),
  ),
  {
    name: "changeAccount",
    input: {
      account,
      // A job waits for a spent budget until the next month.
      change: { budget: 0, limits: { ...noDeliveryLimits, deadLetters: null, logEntries: null } },
    },
  },
  // One message at a time, each with its retries and callbacks, could take weeks.
  ...queues.map((name): CommandCall => ({ name: "upsertQueue", input: { account, name, parallelism: 50 } })),
  // A queue cannot be given a higher limit than this, but keeps a higher one.
  { name: "changeAccount", input: { account, change: { limits: { globalParallelism: 5, parallelism: 3 } } } },
  // Pinned, so that a late callback with a long period does not hold messages again.
  ...keys.map((key): CommandCall => ({
    name: "pinFlowControl",
    input: { account, key, parallelism: 2, rate: 40, period: 10_000 },
  })),
];

/** Returns the calls that delete schedules. They come first, so that schedules create no more messages. */
export const unschedule = (account: AccountId): CommandCall[] =>
  schedules.map((id): CommandCall => ({ name: "deleteSchedule", input: { account, id } }));

/** Returns the calls that allow everything to be removed at the end. */
export const clear = (account: AccountId, { jobs }: Tables): CommandCall[] => [
  {
    name: "removeJobs",
    input: { account, ids: [...jobs.values()].flatMap((job) => (job.account === account ? job.id : [])) },
  },
  ...keys.map((key): CommandCall => ({
    name: "unpinFlowControl",
    input: { account, key, parallelism: true, rate: true },
  })),
  ...queues.map((name): CommandCall => ({ name: "deleteQueue", input: { account, name, slots: [] } })),
  ...groups.map((name): CommandCall => ({ name: "deleteGroup", input: { account, name } })),
];

const listSlots = ({ queueSlots }: Tables, account: AccountId, queue: string): string[] =>
  [...queueSlots.values()].flatMap((slot) =>
    slot.account === account && slot.queue === queue ? [slot.id] : [],
  );
