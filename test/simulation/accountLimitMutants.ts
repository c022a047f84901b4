import type { Draft, TableName } from "../../src/core/decision/command.ts";
import type { Commands } from "../../src/core/commands/index.ts";
import type { Limiter } from "../../src/core/model/message.ts";
import type { Alteration } from "./alterDecision.ts";
import { alterDecision } from "./alterDecision.ts";

type LimiterFilter = (id: string) => boolean;
const isAccountLimiter: LimiterFilter = (id) => id === "account:";
const isEndpointLimiter: LimiterFilter = (id) => id.startsWith("endpoint:");

/** A decision that writes such flows of an account otherwise, where there was one before. */
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

/** A decision that takes every account for one without this limit. */
const hideLimit =
  (limit: "globalParallelism" | "parallelism") =>
  (_: unknown, draft: Draft): Alteration => ({
    get: ((table: TableName, ...key: readonly [string, string]) => {
      const row = draft.get(table, ...key);
      return row && table === "accounts" && "limits" in row ? { ...row, limits: { ...row.limits, [limit]: undefined } } : row;
    }) as Draft["get"],
  });

/** Faults around what an account may have under way. */
export const accountLimitMutants: Record<string, Commands> = {
  "a claim overlooks the limit of the account": alterDecision("claim", hideLimit("globalParallelism")),
  "a publish overlooks the limit of the account": alterDecision("publish", hideLimit("globalParallelism")),
  "a delivery does not count towards its account": alterDecision(
    "claim",
    alterWrittenLimiters(isAccountLimiter, (row, { running }) => ({ ...row, running: Math.min(running, row.running) })),
  ),
  "a delivery that has ended counts towards its account": alterDecision(
    "settle",
    alterWrittenLimiters(isAccountLimiter, (row, { running }) => ({ ...row, running: Math.max(running, row.running) })),
  ),
  "a lost lease counts towards its account": alterDecision(
    "claim",
    alterWrittenLimiters(isAccountLimiter, (row, { running }) => ({ ...row, running: Math.max(running, row.running) })),
  ),
  "a lease forgets that its account counts it": alterDecision("claim", () => ({
    put: { messages: ({ counted: _counted, ...row }) => row },
  })),
  "a key forgets who went on to the line of the account": alterDecision("claim", () => ({
    put: { limiters: ({ waitingDownstream: _onward, ...row }) => row },
  })),
  "a claim overlooks what the account may have under way to an endpoint": alterDecision("claim", hideLimit("parallelism")),
  "a publish overlooks what the account may have under way to an endpoint": alterDecision("publish", hideLimit("parallelism")),
  "an outcome that lets the next one go overlooks what the account may have under way to an endpoint": alterDecision(
    "settle",
    hideLimit("parallelism"),
  ),
  "a delivery does not count towards its endpoint": alterDecision(
    "claim",
    alterWrittenLimiters(isEndpointLimiter, (row, { running }) => ({ ...row, running: Math.min(running, row.running) })),
  ),
  "a delivery that has ended counts towards its endpoint": alterDecision(
    "settle",
    alterWrittenLimiters(isEndpointLimiter, (row, { running }) => ({ ...row, running: Math.max(running, row.running) })),
  ),
  "a lost lease counts towards its endpoint": alterDecision(
    "claim",
    alterWrittenLimiters(isEndpointLimiter, (row, { running }) => ({ ...row, running: Math.max(running, row.running) })),
  ),
  "a lease that is given back counts towards its endpoint": alterDecision(
    "returnLeases",
    alterWrittenLimiters(isEndpointLimiter, (row, { running }) => ({ ...row, running })),
  ),
  "a lease forgets that its endpoint counts it": alterDecision("settle", () => ({
    put: { messages: ({ countedToEndpoint: _counted, ...row }) => row },
  })),
  "an endpoint forgets who went on to the line of the account": alterDecision(
    "claim",
    alterWrittenLimiters(isEndpointLimiter, ({ waitingDownstream: _onward, ...row }) => row),
  ),
  "a message that is cancelled is still counted in the line of its endpoint": alterDecision(
    "cancel",
    alterWrittenLimiters(isEndpointLimiter, (row, { waiting }) => ({ ...row, waiting })),
  ),
  "who waits for an endpoint is not looked at when the limit is another one": alterDecision("claim", () => ({
    put: {
      limiters: (row) =>
        isEndpointLimiter(row.id) && row.waiting > 0 && row.running >= (row.parallelism ?? Infinity) ? { ...row, dueAt: null } : row,
    },
  })),
  "the row of an endpoint stays when its last place is free": alterDecision("settle", (_, draft) => ({
    drop: (table, _draft, [account = "", id = ""]) => {
      const limiter = table === "limiters" && isEndpointLimiter(id) ? draft.get("limiters", account, id) : undefined;
      if (limiter) draft.put("limiters", { ...limiter, running: 0, waiting: 0, waitingDownstream: 0 });
      return limiter === undefined;
    },
  })),
  "the endpoints of a host share its places": alterDecision("publish", () => ({
    put: { messages: (row) => ({ ...row, endpoint: new URL(row.endpoint ?? "").origin }) },
  })),
  "messages to one endpoint have places each for itself": alterDecision("publish", () => ({
    put: { messages: (row) => ({ ...row, endpoint: `${row.endpoint}?${row.id}` }) },
  })),
};
