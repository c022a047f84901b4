import type { AccountId, Letter } from "../../src/core/model/message.ts";
import type { Call } from "../../src/store/store.ts";
import type { Chance } from "./chance.ts";
import type { Known } from "./clients.ts";
import { groups, keys, queues } from "./clients.ts";
import { namesUsedAgain } from "./runClients.ts";
import type { Tables } from "./changes.ts";

const schedules = ["schedule-1", "schedule-2"] as const;

/** A change by hand to what is set up in an account: queues, keys, groups, schedules. */
export function randomSetUp(chance: Chance, { account }: Known, of: { letter: Letter; hosts: readonly string[]; tables: Tables }): Call {
  const [name, key, group] = [chance.of(queues), chance.of(keys), chance.of(groups)];
  const id = chance.happens(0.5) ? `queue:${name}` : `key:${key}`;
  const schedule = { account, id: chance.of(schedules) };
  const { body, ...sent } = of.letter;
  const isToGroup = chance.happens(0.4);
  const letter = { ...sent, notBefore: null, ...(isToGroup ? { url: "", group } : {}) };
  const endpoint = () => ({ name: chance.happens(0.5) ? `n${chance.between(1, 4)}` : null, url: `https://${chance.of(of.hosts)}/group` });
  const calls: (() => Call)[] = [
    () => ({ name: "pauseFlow", input: { account, id } }),
    () => ({ name: "resumeFlow", input: { account, id } }),
    () => ({ name: "resumeFlow", input: { account, id: pausedWithLine(of.tables, account) ?? id } }),
    () => ({
      name: "upsertQueue",
      input: { account, name, parallelism: chance.between(1, 3), ...(chance.happens(0.3) ? { paused: chance.happens(0.5) } : {}) },
    }),
    () => ({ name: "deleteQueue", input: { account, name, slots: slotsOf(of.tables, account, name) } }),
    () => ({ name: "pinFlow", input: { account, key, parallelism: chance.between(1, 3) } }),
    () => ({ name: "pinFlow", input: { account, key, rate: chance.between(1, 3), period: chance.of([700, 5_000]) } }),
    () => ({ name: "unpinFlow", input: { account, key, parallelism: chance.happens(0.5), rate: chance.happens(0.5) } }),
    () => ({ name: "resetRate", input: { account, key } }),
    () => ({ name: "changeAccount", input: { account, change: { limits: underWay(chance.between(1, 4), chance) } } }),
    () => ({ name: "changeAccount", input: { account, change: { limits: chance.happens(0.5) ? unbound : underWay(1, chance) } } }),
    () => ({
      name: "changeAccount",
      input: { account, change: { limits: { deadLetters: chance.between(1, 3), logEntries: chance.of([5, 50]) } } },
    }),
    () => ({ name: "changeAccount", input: { account, change: { budget: chance.of([0, 40, 150]) } } }),
    () => ({ name: "addEndpoints", input: { account, name: group, endpoints: [endpoint(), endpoint()] } }),
    () => ({ name: "addEndpoints", input: { account, name: group, endpoints: [endpoint()] } }),
    () => ({ name: "removeEndpoints", input: { account, name: group, endpoints: [endpoint()] } }),
    () => ({ name: "deleteGroup", input: { account, name: group } }),
    () => ({ name: "createSchedule", input: { ...schedule, cron: chance.of(crons), letter, body } }),
    () => ({ name: "createSchedule", input: { ...schedule, cron: chance.of(crons), letter, body } }),
    () => ({ name: "pauseSchedule", input: schedule }),
    () => ({ name: "resumeSchedule", input: schedule }),
    () => ({ name: "deleteSchedule", input: schedule }),
  ];
  return chance.of(calls)();
}

/** What an account may have under way, in all or to each host, or both. */
const underWay = (most: number, chance: Chance): UnderWay => ({
  ...unbound,
  ...chance.of([{ globalParallelism: most }, { parallelism: most }, { globalParallelism: most + 1, parallelism: most }]),
});

type UnderWay = { globalParallelism: number | null; parallelism: number | null };
const unbound: UnderWay = { globalParallelism: null, parallelism: null };

/** What there is from the beginning. */
export const prepare = (account: AccountId, { letter, hosts }: { letter: Letter; hosts: readonly string[] }): Call[] => {
  const endpoints = hosts.slice(0, 3).map((host) => ({ name: null, url: `https://${host}/group` }));
  const { body, ...sent } = letter;
  const toGroup = { ...sent, notBefore: null, url: "", group: groups[0] };
  return [
    { name: "addEndpoints", input: { account, name: groups[0], endpoints } },
    { name: "upsertQueue", input: { account, name: queues[0], parallelism: 2 } },
    { name: "createSchedule", input: { account, id: schedules[0], cron: crons[1], letter: toGroup, body } },
  ];
};

/** Where people look first: it is paused, and messages wait there. */
const pausedWithLine = (tables: Tables, account: AccountId): string | undefined =>
  [...tables.flows.values()].find((flow) => flow.account === account && flow.paused && flow.waiting > 0)?.id;

const crons = ["* * * * *", "*/2 * * * *", "*/15 * * * *"] as const;

/** Everything that holds something back is set free, and nothing begins by itself any more. */
export const release = (account: AccountId): Call[] => [
  // What came too late for one of them may have brought another one into disorder.
  { name: "cancelRuns", input: { account, runIds: namesUsedAgain } },
  ...[...queues.map((name) => `queue:${name}`), ...keys.map((key) => `key:${key}`)].map((id): Call => ({
    name: "resumeFlow",
    input: { account, id },
  })),
  { name: "changeAccount", input: { account, change: { limits: { ...unbound, deadLetters: null, logEntries: null } } } },
  // One message after another, each with its retries and callbacks, could take weeks.
  ...queues.map((name): Call => ({ name: "upsertQueue", input: { account, name, parallelism: 50 } })),
  // No queue may be given more than this, but those that have more keep it.
  { name: "changeAccount", input: { account, change: { limits: { globalParallelism: 5, parallelism: 3 } } } },
  // Pinned, so that no late callback with a long period holds it all up again.
  ...keys.map((key): Call => ({ name: "pinFlow", input: { account, key, parallelism: 2, rate: 40, period: 10_000 } })),
];

/** Schedules go first, so that what they make does not go on for ever. */
export const unschedule = (account: AccountId): Call[] => schedules.map((id): Call => ({ name: "deleteSchedule", input: { account, id } }));

/** When all has ended, nothing stands in the way of removing it all. */
export const clear = (account: AccountId): Call[] => [
  ...keys.map((key): Call => ({ name: "unpinFlow", input: { account, key, parallelism: true, rate: true } })),
  ...queues.map((name): Call => ({ name: "deleteQueue", input: { account, name, slots: [] } })),
  ...groups.map((name): Call => ({ name: "deleteGroup", input: { account, name } })),
];

const slotsOf = ({ slots }: Tables, account: AccountId, queue: string): string[] =>
  [...slots.values()].flatMap((slot) => (slot.account === account && slot.queue === queue ? [slot.id] : []));
