import type { Limiter } from "../../../../src/engine/core/model/limiter.ts";
import type { Millis } from "../../../../src/engine/core/values/basics.ts";
import type { StoredMessage } from "../../../../src/engine/core/model/message.ts";
import type { ObservedBatch } from "../observedBatch.ts";

/** The most generous limits at any moment of a batch, and whether an operator changed them in it. */
export type PossibleLimits = {
  parallelism: number;
  rate: number;
  period: Millis;
  isReset: boolean;
  isPinned: boolean;
  isPaused: boolean;
};

/** Returns the most generous limits of a limiter in a batch. */
export function readPossibleLimits(
  name: string,
  observed: {
    before: Limiter | undefined;
    after: Limiter | undefined;
    created: readonly StoredMessage[];
    of: ObservedBatch;
  },
): PossibleLimits {
  const [account, id = ""] = name.split("\n");
  const rows = [observed.before, observed.after].flatMap((row) => row ?? []);
  const pinned = (what: "parallelism" | "rate"): boolean =>
    rows.length > 0 && rows.every((row) => row.pinned[what]);
  const calls = observed.of.calls.map(({ name, input }) => ({
    name,
    ...(input as { account: string; id?: string; key?: string; name?: string } & Partial<Limiter>),
    call: name,
  }));
  const about = calls.filter(
    (one) => one.account === account && (`key:${one.key}` === id || `queue:${one.name}` === id),
  );
  const inputs = observed.created.flatMap((one) =>
    one.account === account && `key:${one.flowControl?.key}` === id ? (one.flowControl ?? []) : [],
  );
  const orInfinite = (value: number | null | undefined): number[] =>
    value === undefined ? [] : [value ?? Infinity];
  const rates = [...rows, ...(pinned("rate") ? [] : inputs)];
  return {
    parallelism: Math.max(
      ...(id.startsWith("queue:") && !observed.before ? [1] : []),
      ...[...rows, ...(pinned("parallelism") ? [] : inputs), ...about].flatMap(({ parallelism }) =>
        orInfinite(parallelism),
      ),
    ),
    rate: Math.max(...[...rates, ...about].flatMap(({ rate }) => orInfinite(rate))),
    period: Math.min(...rates.map(({ period }) => period ?? 1000)),
    isPaused:
      rows.length === 2 &&
      rows.every(({ paused }) => paused) &&
      !calls.some(({ call }) => changesPause.has(call)),
    isReset: about.some(
      ({ call, rate, period }) =>
        call === "resetRate" || (call === "pinFlowControl" && (rate ?? period) !== undefined),
    ),
    isPinned: about.some(({ call }) => call === "pinFlowControl" || call === "upsertQueue"),
  };
}

const changesPause = new Set(["pauseLimiter", "resumeLimiter", "upsertQueue"]);
