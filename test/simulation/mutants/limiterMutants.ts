import type { Draft, ReadableName } from "../../../src/engine/core/decision/command.ts";
import type { Commands } from "../../../src/engine/store/catalog/commands.ts";
import { release } from "../../../src/engine/core/admission/admission.ts";
import type { Limiter } from "../../../src/engine/core/model/limiter.ts";

import type { Alteration } from "./alterDecision.ts";
import { alterDecision } from "./alterDecision.ts";

const readLimiterBefore = (draft: Draft, { account, id }: Limiter): Limiter | undefined =>
  draft.get("limiters", account, id);

/** Alters the limiters that a decision sees. `back` restores the altered values before the row is written. */
const alterSeenLimiters =
  (seen: Partial<Limiter>, back: (row: Limiter, before: Limiter) => Limiter) =>
  (_: unknown, draft: Draft): Alteration => ({
    get: ((table: ReadableName, ...key: readonly [string, string]) => {
      const row = draft.get(table, ...key);
      return row && table === "limiters" ? { ...row, ...seen } : row;
    }) as Draft["get"],
    put: {
      limiters: (row) => {
        const before = readLimiterBefore(draft, row);
        return before ? back(row, before) : row;
      },
    },
  });

/** Alters the limiters that a decision writes, if they existed before. */
const alterWrittenLimiters =
  (turn: (row: Limiter, before: Limiter) => Limiter) =>
  (_: unknown, draft: Draft): Alteration => ({
    put: {
      limiters: (row) => {
        const before = readLimiterBefore(draft, row);
        return before ? turn(row, before) : row;
      },
    },
  });

/** Faults of queues, keys, groups and schedules. */
export const limiterMutants: Record<string, Commands> = {
  "a slot does not wait for callbacks": alterDecision("settle", () => ({
    put: { queueSlots: (row) => ({ ...row, holders: 1 }) },
  })),
  "a slot is not shared with callbacks": alterDecision("settle", () => ({
    put: { messages: (row) => (row.slot !== null && row.slot !== row.id ? { ...row, slot: null } : row) },
  })),
  "a retry frees the slot": alterDecision("settle", () => ({
    put: { messages: (row) => (row.state === "pending" ? { ...row, slot: null } : row) },
  })),
  "a cancelled message keeps its slot": alterDecision("cancel", () => ({
    drop: (table) => table !== "queueSlots",
  })),
  "a cancelled message releases its places while it is being sent": alterDecision(
    "cancel",
    (_, draft, moment) => ({
      put: {
        messages: (row) => {
          draft.drop("messages", row.account, row.id);
          release(draft, moment, row);
          return undefined;
        },
        log: (row) => ({ ...row, states: ["CANCEL_REQUESTED", "CANCELLED"] }),
      },
    }),
  ),
  "a message that is cancelled while it is being sent keeps its places forever": alterDecision(
    "settle",
    (outcome, draft) => {
      const state = draft.get("messages", outcome.account, outcome.messageId);
      return state?.state === "cancelling"
        ? {
            put: { limiters: () => undefined, queueSlots: () => undefined },
            drop: (table) => table === "messages",
          }
        : {};
    },
  ),
  "the request of a message cancelled on another node is not aborted": alterDecision("renew", () => ({
    abort: () => undefined,
  })),
  "a cancelled message is sent again when its lease is lost": alterDecision("claim", (_, draft) => ({
    get: ((table: ReadableName, ...key: readonly [string, string]) => {
      const row = draft.get(table, ...key);
      return row && "state" in row && row.state === "cancelling" ? { ...row, state: "active" } : row;
    }) as Draft["get"],
  })),
  "a cancelled message is still counted as waiting": alterDecision(
    "cancel",
    alterWrittenLimiters((row, before) => ({ ...row, waiting: before.waiting })),
  ),
  "a delivery is counted twice": alterDecision(
    "claim",
    alterWrittenLimiters((row, before) => ({
      ...row,
      running: row.running + (row.running > before.running ? 1 : 0),
    })),
  ),
  "a delivery that starts at once is not counted": alterDecision(
    "publish",
    alterWrittenLimiters((row, before) => ({ ...row, running: before.running })),
  ),
  "a lost lease keeps its place at the key": alterDecision(
    "claim",
    alterWrittenLimiters((row, before) => ({ ...row, running: Math.max(row.running, before.running) })),
  ),
  "a returned lease keeps its place at the key": alterDecision("returnLeases", () => ({
    put: { limiters: () => undefined },
  })),
  "a waiting message is not counted": alterDecision(
    "publish",
    alterWrittenLimiters((row, before) => ({ ...row, waiting: before.waiting })),
  ),
  "a new message overtakes the waitlist": alterDecision(
    "publish",
    alterSeenLimiters({ waiting: 0 }, (row, before) => ({ ...row, waiting: row.waiting + before.waiting })),
  ),
  "a paused limiter continues": alterDecision(
    "claim",
    alterSeenLimiters({ paused: false }, (row, { paused }) => ({ ...row, paused })),
  ),
  "a claim ignores parallelism": alterDecision(
    "claim",
    alterSeenLimiters({ parallelism: null }, (row, { parallelism }) => ({ ...row, parallelism })),
  ),
  "a claim ignores the rate": alterDecision(
    "claim",
    alterSeenLimiters({ rate: null }, (row, { rate }) => ({ ...row, rate })),
  ),
  "a window starts again with every delivery": alterDecision("publish", (_, __, { now }) => ({
    put: { limiters: (row) => ({ ...row, windowStart: now, windowUsed: 0 }) },
  })),
  "a window never ends": alterDecision(
    "claim",
    alterWrittenLimiters((row, { windowStart, windowUsed }) => ({
      ...row,
      windowStart,
      windowUsed: Math.max(windowUsed, row.windowUsed),
    })),
  ),
  "a pinned limit follows the messages": alterDecision(
    "publish",
    alterSeenLimiters({ pinned: { parallelism: false, rate: false } }, (row, { pinned }) => ({
      ...row,
      pinned,
    })),
  ),
  "a resumed limiter is not looked at": alterDecision("resumeLimiter", () => ({
    put: { limiters: (row) => ({ ...row, dueAt: null }) },
  })),
  "a released place is not given to a waiting message": alterDecision("settle", () => ({
    put: { limiters: (row) => ({ ...row, dueAt: null }) },
  })),
  "an unused key is removed at once": alterDecision("settle", (_, __, { now }) => ({
    put: { limiters: (row) => ({ ...row, dueAt: row.dueAt === null ? null : now }) },
  })),
  "a queue is deleted with waiting messages": alterDecision("deleteQueue", (_, draft) => ({
    get: ((table: ReadableName, ...key: readonly [string, string]) => {
      const row = draft.get(table, ...key);
      return row && table === "limiters" ? { ...row, running: 0, waiting: 0 } : row;
    }) as Draft["get"],
  })),
  "the first endpoint of a group is skipped": alterDecision("publish", (_, draft) => ({
    inspect: ((table: "urlGroups", ...key: readonly [string, string]) => {
      const group = table === "urlGroups" ? draft.inspect("urlGroups", ...key) : undefined;
      return group ? { ...group, endpoints: group.endpoints.slice(1) } : draft.inspect(table, ...key);
    }) as Draft["inspect"],
  })),
  "a schedule fires repeatedly": alterDecision("claim", (_, draft) => ({
    put: {
      schedules: (row) => ({ ...row, dueAt: draft.inspect("schedules", row.account, row.id)?.dueAt ?? null }),
    },
  })),
  "a schedule skips a time": alterDecision("claim", () => ({
    put: { schedules: (row) => ({ ...row, dueAt: row.dueAt === null ? null : row.dueAt + 60_000 }) },
  })),
  "a paused schedule fires": alterDecision("pauseSchedule", (_, draft) => ({
    put: {
      schedules: (row) => ({ ...row, dueAt: draft.inspect("schedules", row.account, row.id)?.dueAt ?? null }),
    },
  })),
};
