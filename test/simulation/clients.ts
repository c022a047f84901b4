import type { InputOf } from "../../src/core/commands.ts";
import type { AccountId, CallbackSettings, Letter, SendSettings } from "../../src/core/message.ts";
import type { Chance } from "./chance.ts";

type Settings = { chance: Chance; hosts: readonly string[]; now: number };

/** Random letters to random hosts, with everything a publish can ask for. */
export function randomLetters({ chance, hosts, now }: Settings): Letter[] {
  const count = chance.happens(0.1) ? chance.between(2, 40) : 1;
  // Many to one host at once is what lines are made of.
  const one = chance.happens(0.5) ? chance.of(hosts) : null;
  return Array.from({ length: count }, () => randomLetter({ chance, hosts: one === null ? hosts : [one], all: hosts, now }));
}

function randomLetter({ chance, hosts, all, now }: Settings & { all: readonly string[] }): Letter {
  const wait = chance.next();
  return {
    ...randomSettings(chance, all, 3),
    brand: chance.of(["svc", "upstash"]),
    url: `https://${chance.of(hosts)}/${chance.between(1, 9)}`,
    body: new TextEncoder().encode("x".repeat(chance.between(0, 20))),
    delay: wait < 0.2 ? chance.between(1, 90_000) : null,
    notBefore: wait > 0.9 ? now + chance.between(-5_000, 60_000) : null,
    deduplication: chance.happens(0.15) ? `key-${chance.between(1, 12)}` : null,
    labels: [],
    redaction: null,
    callerIp: null,
    tells: null,
  };
}

function randomSettings(chance: Chance, hosts: readonly string[], depth: number): SendSettings {
  const callback = (probability: number): CallbackSettings | null =>
    depth > 0 && chance.happens(probability)
      ? { url: `https://${chance.of(hosts)}/told`, ...randomSettings(chance, hosts, depth - 1) }
      : null;
  return {
    method: "POST",
    headers: [],
    retries: chance.happens(0.2) ? null : chance.between(0, 4),
    retryDelay: chance.happens(0.7) ? chance.of(["0", "500", "1000 * (1 + retried)", "pow(2, retried) * 3000", "-1"]) : null,
    timeout: chance.happens(0.04) ? null : chance.between(500, 120_000),
    callback: callback(0.12),
    failureCallback: callback(0.25),
  };
}

/** What the clients of one account know, and so can ask for. */
export type Known = { account: AccountId; messageIds: string[]; dlqIds: string[] };

export function randomCancel(chance: Chance, { account, messageIds }: Known): InputOf<"cancel"> {
  return { account, messageIds: some(chance, messageIds) };
}

export function randomRetry(chance: Chance, { account, dlqIds }: Known, logRetention: number): InputOf<"retryDeadLetters"> {
  const overrides = chance.happens(0.3) ? { retries: chance.between(0, 2), delay: chance.between(0, 5_000) } : {};
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
