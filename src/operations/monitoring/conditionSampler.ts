import type { Condition, ConditionKind, ConditionLevel } from "../../engine/core/explain/condition.ts";
import { isOfServer } from "../../engine/core/explain/condition.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import { second } from "../../engine/core/values/time.ts";

/** The number of conditions of one kind and level, of all accounts. */
export type ConditionCount = { kind: ConditionKind; level: ConditionLevel; count: number };

/** The conditions of the accounts, and when the oldest of them were looked at. */
export type ConditionSample = { counts: readonly ConditionCount[]; at: Millis };

type SamplerOptions = {
  accounts(): Promise<readonly Account[]>;
  listConditions(account: Account): Promise<readonly Condition[]>;
  now(): Millis;
};

/** A sample that is older than this is replaced when somebody reads it. */
const maxAge: Millis = 10 * second;
/** The accounts that one pass looks at. A server with more looks at them in turns. */
const accountsOfPass = 50;

/**
 * Counts the conditions of all accounts, for the metrics of the server. A read starts the next pass, and
 * returns the result of earlier ones without waiting. So a server that nobody scrapes does no work for it,
 * and a store that hangs delays no scrape.
 */
export class ConditionSampler {
  readonly #options: SamplerOptions;
  /** The last conditions of each account, and when they were read. */
  readonly #known = new Map<AccountId, { conditions: readonly Condition[]; at: Millis }>();
  #startedAt: Millis = -Infinity;
  #pass: Promise<void> | null = null;
  #isStopped = false;
  /** The accounts that come after this one are next. */
  #last: AccountId = "";

  constructor(options: SamplerOptions) {
    this.#options = options;
  }

  /** Returns the last sample, or null before the first one. Begins a new one if it is old. */
  read(): ConditionSample | null {
    const now = this.#options.now();
    if (this.#pass === null && !this.#isStopped && Math.abs(now - this.#startedAt) >= maxAge) {
      this.#startedAt = now;
      this.#pass = this.#look()
        // The storage is unavailable. The age of the sample shows that.
        .catch(() => undefined)
        .finally(() => (this.#pass = null));
    }
    if (this.#known.size === 0) return null;
    const known = [...this.#known.values()];
    return { counts: count(known), at: Math.min(...known.map(({ at }) => at)) };
  }

  /** Stops, and resolves when no read is running. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#pass;
  }

  async #look(): Promise<void> {
    const { accounts, listConditions, now } = this.#options;
    const all = (await accounts())
      .filter(({ deletedAt }) => deletedAt === undefined)
      .toSorted((a, b) => (a.id < b.id ? -1 : 1));
    const ids = new Set(all.map(({ id }) => id));
    for (const id of this.#known.keys()) if (!ids.has(id)) this.#known.delete(id);
    const next = all.findIndex(({ id }) => id > this.#last);
    const turn = next === -1 ? all : [...all.slice(next), ...all.slice(0, next)];
    // One after another: a look at all accounts must not delay deliveries.
    for (const account of turn.slice(0, accountsOfPass)) {
      if (this.#isStopped) return;
      const at = now();
      this.#known.set(account.id, { conditions: await listConditions(account), at });
      this.#last = account.id;
    }
  }
}

/** Counts conditions. One of the server, which each account has, counts once. */
function count(known: Iterable<{ conditions: readonly Condition[] }>): ConditionCount[] {
  const counts = new Map<string, ConditionCount>();
  const seen = new Set<string>();
  for (const { conditions } of known)
    for (const { kind, level, subject } of conditions) {
      if (isOfServer(kind)) {
        if (seen.has(`${kind} ${subject}`)) continue;
        seen.add(`${kind} ${subject}`);
      }
      const key = `${kind} ${level}`;
      const before = counts.get(key) ?? { kind, level, count: 0 };
      counts.set(key, { ...before, count: before.count + 1 });
    }
  return [...counts.values()];
}
