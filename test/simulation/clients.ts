import type { InputOf } from "../../src/core/commands/index.ts";
import type { AccountId, CallbackSettings, FlowControl, Letter, SendSettings } from "../../src/core/model/message.ts";
import type { Chance } from "./chance.ts";

type Settings = { chance: Chance; hosts: readonly string[]; now: number };

/** Random letters to random hosts, with everything a publish can ask for. */
export function randomLetters({ chance, hosts, now }: Settings): Letter[] {
  const count = chance.happens(0.1) ? chance.between(2, 40) : 1;
  // Many to one host at once is what lines are made of.
  const one = chance.happens(0.5) ? chance.of(hosts) : null;
  return Array.from({ length: count }, () => randomLetter({ chance, hosts: one === null ? hosts : [one], all: hosts, now }));
}

/** How long a key is known, drawn with the delay. Null: as long as nobody says otherwise. */
const windows = [null, null, null, null, null, null, null, 1_000, 60_000, 86_400_000];

function randomLetter({ chance, hosts, all, now }: Settings & { all: readonly string[] }): Letter {
  const wait = chance.next();
  const group = chance.happens(0.06) ? chance.of(groups) : null;
  return {
    ...randomSettings(chance, all, 3),
    brand: chance.of(["svc", "upstash"]),
    url: group === null ? `https://${chance.of(hosts)}${pathOf(chance.between(1, 9))}` : "",
    body: new TextEncoder().encode("x".repeat(chance.between(0, 20))),
    delay: wait < 0.2 ? chance.between(1, 90_000) : null,
    notBefore: wait > 0.9 ? now + chance.between(-5_000, 60_000) : null,
    ...{ group, endpoint: null, queue: chance.happens(0.25) ? chance.of(queues) : null, scheduleId: null },
    deduplication: chance.happens(0.15) ? `key-${chance.between(1, 12)}` : null,
    deduplicationWindow: windows[Math.floor(wait * 1_000) % windows.length] ?? null,
    labels: [],
    redaction: null,
    callerIp: null,
    tells: null,
  };
}

/** Most of them are one path, with another query each. */
const pathOf = (number: number): string => (number < 7 ? `/7?${number}` : `/${number}`);

function randomSettings(chance: Chance, hosts: readonly string[], depth: number): SendSettings {
  const callback = (probability: number): CallbackSettings | null =>
    depth > 0 && chance.happens(probability)
      ? {
          url: `https://${chance.of(hosts)}/told`,
          ...randomSettings(chance, hosts, depth - 1),
          ...(chance.happens(0.2) ? { delay: chance.between(1, 60_000) } : {}),
        }
      : null;
  return {
    method: "POST",
    headers: [],
    retries: chance.happens(0.2) ? null : chance.between(0, 4),
    retryDelay: chance.happens(0.7) ? chance.of(["0", "500", "1000 * (1 + retried)", "pow(2, retried) * 3000", "-1"]) : null,
    timeout: chance.happens(0.01) ? null : chance.between(500, chance.of([5_000, 60_000])),
    flowControl: chance.happens(0.25) ? randomFlowControl(chance) : null,
    callback: callback(0.12),
    failureCallback: callback(0.25),
  };
}

export const groups = ["group-1", "group-2"] as const;
export const queues = ["queue-1", "queue-2", "queue-3"] as const;
export const keys = ["key-1", "key-2", "key-3"] as const;

/** Limits that change from letter to letter. A long period is rare: what waits for it makes a run long. */
function randomFlowControl(chance: Chance): FlowControl {
  const kind = chance.next();
  return {
    key: chance.of(keys),
    parallelism: kind < 0.7 ? chance.between(1, 3) : null,
    rate: kind > 0.4 ? chance.between(1, 4) : null,
    period: chance.of([null, 500, 2_000, 20_000, chance.happens(0.1) ? 2 * 3_600_000 : 1_000]),
  };
}

/** What the clients of one account know, and so can ask for. */
export type Known = { account: AccountId; messageIds: string[]; dlqIds: string[] };

export function randomCancel(chance: Chance, { account, messageIds }: Known): InputOf<"cancel"> {
  return { account, messageIds: some(chance, messageIds) };
}

export function randomRetry(chance: Chance, { account, dlqIds }: Known, logRetention: number): InputOf<"retryDeadLetters"> {
  const ofKey = chance.happens(0.3) ? { flowControl: randomFlowControl(chance) } : {};
  const overrides = chance.happens(0.3) ? { retries: chance.between(0, 2), delay: chance.between(0, 5_000), ...ofKey } : {};
  return { account, dlqIds: some(chance, dlqIds), logRetention, overrides };
}

export function randomDelete(chance: Chance, { account, dlqIds }: Known, logRetention: number): InputOf<"deleteDeadLetters"> {
  return { account, dlqIds: some(chance, dlqIds), logRetention };
}

/** Some of a list, rather new ones, now and then one of them twice, and one that never was. */
function some(chance: Chance, ids: readonly string[]): string[] {
  const recent = ids.slice(-20);
  const chosen = Array.from({ length: Math.min(recent.length, chance.between(1, 4)) }, () => chance.of(recent));
  return chance.happens(0.1) ? [...chosen, "never_was"] : chosen;
}
