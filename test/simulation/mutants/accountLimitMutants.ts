import type { Draft, ReadableName } from "../../../src/engine/core/decision/command.ts";
import type { Commands } from "../../../src/engine/store/catalog/commands.ts";
import type { Limiter } from "../../../src/engine/core/model/limiter.ts";
import type { Alteration } from "./alterDecision.ts";
import { alterDecision } from "./alterDecision.ts";

type LimiterFilter = (id: string) => boolean;
const isAccountLimiter: LimiterFilter = (id) => id === "account:";
const isEndpointLimiter: LimiterFilter = (id) => id.startsWith("endpoint:");

/** Alters the limiters of an account that a decision writes, if they existed before. */
const alterWrittenLimiters =
  (isMeant: LimiterFilter, turn: (row: Limiter, before: Limiter) => Limiter) =>
  (_: unknown, draft: Draft): Alteration => ({
    put: {
      limiters: (row) => {
        const before = isMeant(row.id) ? draft.get("limiters", row.account, row.id) : undefined;
        return before ? turn(row, before) : row;
      },
    },
  });

/** Hides a limit of every account from a decision. */
const hideLimit =
  (limit: "globalParallelism" | "parallelism") =>
  (_: unknown, draft: Draft): Alteration => ({
    get: ((table: ReadableName, ...key: readonly [string, string]) => {
      const row = draft.get(table, ...key);
      return row && table === "accounts" && "limits" in row
        ? { ...row, limits: { ...row.limits, [limit]: undefined } }
        : row;
    }) as Draft["get"],
  });

/** Faults of account limits. */
export const accountLimitMutants: Record<string, Commands> = {
  "a claim ignores the account's limit in total": alterDecision("claim", hideLimit("globalParallelism")),
  "a publish ignores the account's limit in total": alterDecision("publish", hideLimit("globalParallelism")),
  "a delivery is not counted for its account": alterDecision(
    "claim",
    alterWrittenLimiters(isAccountLimiter, (row, { running }) => ({
      ...row,
      running: Math.min(running, row.running),
    })),
  ),
  "a delivery that has ended is still counted for its account": alterDecision(
    "settle",
    alterWrittenLimiters(isAccountLimiter, (row, { running }) => ({
      ...row,
      running: Math.max(running, row.running),
    })),
  ),
  "a lost lease is still counted for its account": alterDecision(
    "claim",
    alterWrittenLimiters(isAccountLimiter, (row, { running }) => ({
      ...row,
      running: Math.max(running, row.running),
    })),
  ),
  "a lease does not record that its account counts it": alterDecision("claim", () => ({
    put: { messages: ({ counted: _counted, ...row }) => row },
  })),
  "a key does not count messages that wait for the account": alterDecision("claim", () => ({
    put: { limiters: ({ waitingDownstream: _onward, ...row }) => row },
  })),
  "a claim ignores the account's limit per endpoint": alterDecision("claim", hideLimit("parallelism")),
  "a publish ignores the account's limit per endpoint": alterDecision("publish", hideLimit("parallelism")),
  "a settle that starts the next message ignores the account's limit per endpoint": alterDecision(
    "settle",
    hideLimit("parallelism"),
  ),
  "a delivery is not counted for its endpoint": alterDecision(
    "claim",
    alterWrittenLimiters(isEndpointLimiter, (row, { running }) => ({
      ...row,
      running: Math.min(running, row.running),
    })),
  ),
  "a delivery that has ended is still counted for its endpoint": alterDecision(
    "settle",
    alterWrittenLimiters(isEndpointLimiter, (row, { running }) => ({
      ...row,
      running: Math.max(running, row.running),
    })),
  ),
  "a lost lease is still counted for its endpoint": alterDecision(
    "claim",
    alterWrittenLimiters(isEndpointLimiter, (row, { running }) => ({
      ...row,
      running: Math.max(running, row.running),
    })),
  ),
  "a returned lease is still counted for its endpoint": alterDecision(
    "returnLeases",
    alterWrittenLimiters(isEndpointLimiter, (row, { running }) => ({ ...row, running })),
  ),
  "a lease does not record that its endpoint counts it": alterDecision("settle", () => ({
    put: { messages: ({ countedToEndpoint: _counted, ...row }) => row },
  })),
  "an endpoint does not count messages that wait for the account": alterDecision(
    "claim",
    alterWrittenLimiters(isEndpointLimiter, ({ waitingDownstream: _onward, ...row }) => row),
  ),
  "a cancelled message is still counted in the waitlist of its endpoint": alterDecision(
    "cancel",
    alterWrittenLimiters(isEndpointLimiter, (row, { waiting }) => ({ ...row, waiting })),
  ),
  "messages that wait for an endpoint are not looked at when the limit changes": alterDecision(
    "claim",
    () => ({
      put: {
        limiters: (row) =>
          isEndpointLimiter(row.id) && row.waiting > 0 && row.running >= (row.parallelism ?? Infinity)
            ? { ...row, dueAt: null }
            : row,
      },
    }),
  ),
  "the row of an endpoint stays when its last place is released": alterDecision("settle", (_, draft) => ({
    drop: (table, _draft, [account = "", id = ""]) => {
      const limiter =
        table === "limiters" && isEndpointLimiter(id) ? draft.get("limiters", account, id) : undefined;
      if (limiter) draft.put("limiters", { ...limiter, running: 0, waiting: 0, waitingDownstream: 0 });
      return limiter === undefined;
    },
  })),
  "the endpoints of a host share their places": alterDecision("publish", () => ({
    put: { messages: (row) => ({ ...row, endpoint: new URL(row.endpoint ?? "").origin }) },
  })),
  "each message to an endpoint has its own places": alterDecision("publish", () => ({
    put: { messages: (row) => ({ ...row, endpoint: `${row.endpoint}?${row.id}` }) },
  })),
};
