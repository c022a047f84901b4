import type { Draft, Moment, Rows, TableName } from "../../src/core/decision/command.ts";
import type { Commands } from "../../src/core/commands/index.ts";
import { release } from "../../src/core/admission/admission.ts";
import type { Limiter, MessageInput, MessageState } from "../../src/core/model/message.ts";
import { makeTimeIndexKeys } from "../../src/core/search/timeIndex.ts";
import { parseAddress } from "../../src/core/values/url.ts";
import type { Alteration } from "./alterDecision.ts";
import { alterInput, alterDecision } from "./alterDecision.ts";
import { accountLimitMutants } from "./accountLimitMutants.ts";
import { auditMutants } from "./auditMutants.ts";
import { budgetMutants } from "./budgetMutants.ts";
import { runMutants } from "./runMutants.ts";
import { scopeMutants } from "./scopeMutants.ts";

const never = { messages: () => undefined };
const pending = (row: MessageState): boolean => row.state === "pending";
const ended = (states: readonly string[]): boolean => states.some((state) => ["DELIVERED", "FAILED", "CANCELLED"].includes(state));

/** A settle or renew that takes whoever comes for the owner of the lease. */
const ignoreLeaseOwner =
  (held: readonly { messageId: string; attempt: number }[]) =>
  (_: unknown, draft: Draft, moment: Moment): Alteration => ({
    get: ((table: TableName, ...key: readonly [string, string]) => {
      const row = draft.get(table, ...key);
      const claim = table === "messages" && held.find(({ messageId }) => messageId === key[1]);
      return row && claim ? { ...row, state: "active", leasedBy: moment.node, attempts: claim.attempt } : row;
    }) as Draft["get"],
  });

const readLimiterBefore = (draft: Draft, { account, id }: Limiter): Limiter | undefined => draft.get("limiters", account, id);

/** A decision that sees flows otherwise than they are. What it saw wrong is not written: `back` puts it right again. */
const alterSeenLimiters =
  (seen: Partial<Limiter>, back: (row: Limiter, before: Limiter) => Limiter) =>
  (_: unknown, draft: Draft): Alteration => ({
    get: ((table: TableName, ...key: readonly [string, string]) => {
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

/** A decision that writes flows otherwise, where there was one before. */
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
const limiterMutants: Record<string, Commands> = {
  "a slot does not wait for callbacks": alterDecision("settle", () => ({ put: { queueSlots: (row) => ({ ...row, holders: 1 }) } })),
  "a slot is not shared with callbacks": alterDecision("settle", () => ({
    put: { messages: (row) => (row.slot !== null && row.slot !== row.id ? { ...row, slot: null } : row) },
  })),
  "a retry frees the slot": alterDecision("settle", () => ({ put: { messages: (row) => (pending(row) ? { ...row, slot: null } : row) } })),
  "a cancelled message keeps its slot": alterDecision("cancel", () => ({ drop: (table) => table !== "queueSlots" })),
  "a cancelled message gives back its places while it is being sent": alterDecision("cancel", (_, draft, moment) => ({
    put: {
      messages: (row) => {
        draft.drop("messages", row.account, row.id);
        release(draft, moment, row);
        return undefined;
      },
      log: (row) => ({ ...row, states: ["CANCEL_REQUESTED", "CANCELLED"] }),
    },
  })),
  "a message that is cancelled while it is being sent keeps its places for ever": alterDecision("settle", (outcome, draft) => {
    const state = draft.get("messages", outcome.account, outcome.messageId);
    return state?.state === "cancelling"
      ? { put: { limiters: () => undefined, queueSlots: () => undefined }, drop: (table) => table === "messages" }
      : {};
  }),
  "what is cancelled elsewhere is not called off": alterDecision("renew", () => ({ abort: () => undefined })),
  "what is cancelled is sent again when its lease is lost": alterDecision("claim", (_, draft) => ({
    get: ((table: TableName, ...key: readonly [string, string]) => {
      const row = draft.get(table, ...key);
      return row && "state" in row && row.state === "cancelling" ? { ...row, state: "active" } : row;
    }) as Draft["get"],
  })),
  "a cancelled message is still counted in line": alterDecision(
    "cancel",
    alterWrittenLimiters((row, before) => ({ ...row, waiting: before.waiting })),
  ),
  "a delivery is counted twice": alterDecision(
    "claim",
    alterWrittenLimiters((row, before) => ({ ...row, running: row.running + (row.running > before.running ? 1 : 0) })),
  ),
  "a delivery that begins at once is not counted": alterDecision(
    "publish",
    alterWrittenLimiters((row, before) => ({ ...row, running: before.running })),
  ),
  "a lost lease keeps its place under the key": alterDecision(
    "claim",
    alterWrittenLimiters((row, before) => ({ ...row, running: Math.max(row.running, before.running) })),
  ),
  "a lease that is given back keeps its place under the key": alterDecision("returnLeases", () => ({ put: { limiters: () => undefined } })),
  "who stands in line is not counted": alterDecision(
    "publish",
    alterWrittenLimiters((row, before) => ({ ...row, waiting: before.waiting })),
  ),
  "a newcomer overtakes the line": alterDecision(
    "publish",
    alterSeenLimiters({ waiting: 0 }, (row, before) => ({ ...row, waiting: row.waiting + before.waiting })),
  ),
  "a paused flow goes on": alterDecision(
    "claim",
    alterSeenLimiters({ paused: false }, (row, { paused }) => ({ ...row, paused })),
  ),
  "a claim overlooks parallelism": alterDecision(
    "claim",
    alterSeenLimiters({ parallelism: null }, (row, { parallelism }) => ({ ...row, parallelism })),
  ),
  "a claim overlooks the rate": alterDecision(
    "claim",
    alterSeenLimiters({ rate: null }, (row, { rate }) => ({ ...row, rate })),
  ),
  "a window begins anew with every delivery": alterDecision("publish", (_, __, { now }) => ({
    put: { limiters: (row) => ({ ...row, windowStart: now, windowUsed: 0 }) },
  })),
  "a window never ends": alterDecision(
    "claim",
    alterWrittenLimiters((row, { windowStart, windowUsed }) => ({ ...row, windowStart, windowUsed: Math.max(windowUsed, row.windowUsed) })),
  ),
  "a pinned limit follows the messages": alterDecision(
    "publish",
    alterSeenLimiters({ pinned: { parallelism: false, rate: false } }, (row, { pinned }) => ({ ...row, pinned })),
  ),
  "what is resumed is not looked at": alterDecision("resumeLimiter", () => ({ put: { limiters: (row) => ({ ...row, dueAt: null }) } })),
  "a place that is free is not given on": alterDecision("settle", () => ({ put: { limiters: (row) => ({ ...row, dueAt: null }) } })),
  "a key is forgotten at once": alterDecision("settle", (_, __, { now }) => ({
    put: { limiters: (row) => ({ ...row, dueAt: row.dueAt === null ? null : now }) },
  })),
  "a queue is deleted with those who wait in it": alterDecision("deleteQueue", (_, draft) => ({
    get: ((table: TableName, ...key: readonly [string, string]) => {
      const row = draft.get(table, ...key);
      return row && table === "limiters" ? { ...row, running: 0, waiting: 0 } : row;
    }) as Draft["get"],
  })),
  "a group's first endpoint is left out": alterDecision("publish", (_, draft) => ({
    get: ((table: TableName, ...key: readonly [string, string]) => {
      const group = table === "urlGroups" ? draft.get("urlGroups", ...key) : undefined;
      return group ? { ...group, endpoints: group.endpoints.slice(1) } : draft.get(table, ...key);
    }) as Draft["get"],
  })),
  "a schedule fires again and again": alterDecision("claim", (_, draft) => ({
    put: { schedules: (row) => ({ ...row, dueAt: draft.get("schedules", row.account, row.id)?.dueAt ?? null }) },
  })),
  "a schedule skips a time": alterDecision("claim", () => ({
    put: { schedules: (row) => ({ ...row, dueAt: row.dueAt === null ? null : row.dueAt + 60_000 }) },
  })),
  "a paused schedule fires": alterDecision("pauseSchedule", (_, draft) => ({
    put: { schedules: (row) => ({ ...row, dueAt: draft.get("schedules", row.account, row.id)?.dueAt ?? null }) },
  })),
};

/** Faults of what is counted, and of the requests of a day. */
const usageMutants: Record<string, Commands> = {
  "an end is not counted": alterDecision("settle", () => ({ count: () => undefined })),
  "a message is counted twice": alterDecision("publish", (_, draft) => ({
    count: (account, counts) => {
      draft.count(account, counts);
      if (counts.messages) draft.count(account, counts);
    },
  })),
  "what one account uses is counted for the other": alterDecision("publish", (_, draft) => ({
    count: (account, counts) => draft.count(account === "acme" ? "umbrella" : "acme", counts),
  })),
  "dead letters that go are still counted": alterDecision("retryDeadLetters", (_, draft) => ({
    count: (account, counts) => draft.count(account, { ...counts, deadLetters: 0 }),
  })),
  "buckets are never removed": alterDecision("expire", () => ({ drop: (table) => table !== "usage" })),
  "the requests of a day are forgotten": alterDecision("publish", () => ({ put: { dayCounts: () => undefined } })),
  "a request counts twice": alterDecision("publish", () => ({ put: { dayCounts: (row) => ({ ...row, requests: row.requests + 1 }) } })),
};

/** Faults that were planted on purpose, by what is wrong with them. The simulation must find every one. */
export const mutants: Record<string, Commands> = {
  ...limiterMutants,
  ...usageMutants,
  ...runMutants,
  ...accountLimitMutants,
  ...auditMutants,
  ...scopeMutants,
  ...budgetMutants,
  "a settle ignores whose lease it is": alterDecision("settle", (outcome, draft, moment) =>
    ignoreLeaseOwner([outcome])(outcome, draft, moment),
  ),
  "a renew ignores whose lease it is": alterDecision("renew", ({ leases }, draft, moment) => ignoreLeaseOwner(leases)(null, draft, moment)),
  "a report that came twice counts twice": alterDecision("settle", () => ({ drop: (table) => table !== "messages" })),
  "a lost lease is not counted": alterDecision("claim", () => ({ put: { messages: (row) => ({ ...row, lostAttempts: 0 }) } })),
  "a lost lease uses up no attempt": alterDecision("claim", (_, draft) => ({
    put: { messages: (row) => ({ ...row, attempts: draft.get("messages", row.account, row.id)?.attempts ?? 0 }) },
  })),
  "a claim forgets to lease": alterDecision("claim", () => ({
    put: { messages: (row) => (row.state === "active" ? { ...row, state: "pending", leasedBy: null } : row) },
  })),
  "a claim forgets the message it cannot send": alterDecision("claim", () => ({
    put: { messages: (row) => (row.state === "held" ? { ...row, dueAt: null, state: "pending" } : row) },
  })),
  "a line is forgotten when it is made": alterDecision("claim", () => ({ put: { hostWaitlists: () => undefined } })),
  "a line is dropped before its last message": alterDecision("settle", (_, draft) => ({
    put: {
      hostWaitlists: ({ account, host }) => {
        draft.drop("hostWaitlists", account, host);
        return undefined;
      },
    },
  })),
  "a line is never dropped": alterDecision("claim", () => ({ drop: (table) => table !== "hostWaitlists" })),
  "a retry does not count": alterDecision("settle", () => ({
    put: { messages: (row) => (pending(row) && row.attempts > 0 ? { ...row, attempts: row.attempts - 1 } : row) },
  })),
  "a retry comes a second early": alterDecision("settle", () => ({
    put: { messages: (row) => (pending(row) && row.attempts > 0 ? { ...row, dueAt: (row.dueAt ?? 0) - 1000 } : row) },
  })),
  "a retry is forgotten": alterDecision("settle", () => ({
    put: { messages: (row) => (pending(row) && row.attempts > 0 ? { ...row, dueAt: null } : row) },
  })),
  "a failure callback is sent twice": alterDecision("settle", (_, draft, moment) => ({
    put: {
      storedMessages: (row) => {
        const id = row.reportsOn?.kind === "failureCallback" ? moment.newId("msg") : null;
        if (id !== null) draft.put("storedMessages", { ...row, id, startedAtOnce: false });
        if (id !== null) draft.put("messages", toMessageState({ ...row, id }));
        return row;
      },
    },
  })),
  "a failure callback names another entry": alterDecision("settle", () => ({
    put: { storedMessages: (row) => (row.reportsOn?.dlqId ? { ...row, reportsOn: { ...row.reportsOn, dlqId: "another" } } : row) },
  })),
  "a callback is forgotten": alterDecision("settle", () => ({
    put: { storedMessages: (row) => (row.reportsOn?.kind === "callback" ? { ...row, reportsOn: null } : row) },
  })),
  "the dead letter does not hear of its failure callback": alterDecision("settle", (_, draft) => ({
    put: { deadLetters: (row) => (draft.get("deadLetters", row.account, row.id) ? undefined : row) },
  })),
  "a failure has no dead letter": alterDecision("settle", () => ({ put: { deadLetters: () => undefined } })),
  "a failed message keeps its deduplication id": alterDecision("settle", () => ({ drop: (table) => table !== "deduplications" })),
  "a deduplication id is never remembered": alterDecision("publish", () => ({ put: { deduplications: () => undefined } })),
  "the window of a deduplication id is not looked at": alterInput("publish", ({ account, inputs }) => ({
    account,
    inputs: inputs.map((letter) => ({ ...letter, deduplicationWindow: null })),
  })),
  "deduplication does not see who asks": alterInput("publish", ({ account, inputs }) => ({
    account,
    inputs: inputs.map((letter) => ({ ...letter, deduplication: letter.deduplication && "one" })),
  })),
  "a delay is ignored": alterInput("publish", ({ account, inputs }) => ({
    account,
    inputs: inputs.map((letter): MessageInput => ({ ...letter, delay: null, notBefore: null })),
  })),
  "a publish is answered and not kept": alterDecision("publish", () => ({ put: never })),
  "a cancel is not logged": alterDecision("cancel", () => ({ put: { log: () => undefined } })),
  "a cancelled message is sent all the same": alterDecision("cancel", () => ({ drop: (table) => table !== "messages" })),
  "a lease that is given back counts as an attempt": alterDecision("returnLeases", () => ({
    put: { messages: (row) => ({ ...row, attempts: row.attempts + 1 }) },
  })),
  "a lease is not given back": alterDecision("returnLeases", () => ({ put: never })),
  "hands are not counted": alterDecision("claim", () => ({ hasCapacity: () => true, takeCapacity: () => true })),
  "expired log takes unfinished messages along": alterDecision("expire", (_, draft) => ({
    moveToKeptLog: (row) => {
      draft.moveToKeptLog(row);
      draft.drop("messages", row.account, row.messageId);
    },
  })),
  "expired log takes along what a dead letter shows": alterDecision("expire", (_, draft) => ({
    moveToKeptLog: (row) => {
      draft.moveToKeptLog(row);
      if (ended(row.states)) draft.drop("storedMessages", row.account, row.messageId);
    },
  })),
  "a log loses its end": alterDecision("expire", (_, draft) => ({
    moveToKeptLog: (row) => (ended(row.states) ? draft.drop("log", row.account, row.id) : draft.moveToKeptLog(row)),
  })),
  "a log loses its beginning": alterDecision("expire", (_, draft) => ({
    moveToKeptLog: (row) => (ended(row.states) ? draft.moveToKeptLog(row) : draft.drop("log", row.account, row.id)),
  })),
  "what is kept of a log is rewritten": alterDecision("expire", (_, draft) => ({
    moveToKeptLog: (row) => draft.moveToKeptLog({ ...row, status: 418 }),
  })),
  "what is kept of a log outlives its message": alterDecision("expire", () => ({ drop: (table) => table !== "keptLog" })),
  "a dead letter that is deleted leaves its log behind": alterDecision("deleteDeadLetters", () => ({
    drop: (table) => table !== "keptLog",
  })),
  "envelopes are never removed": alterDecision("expire", () => ({ drop: (table) => table !== "storedMessages" })),
  "deduplication ids are never removed": alterDecision("expire", () => ({ drop: (table) => table !== "deduplications" })),
  "retention asks for the time of the node": alterInput("expire", (input) => ({
    ...input,
    retention: { log: input.retention.log / 2, deadLetters: input.retention.deadLetters / 2 },
  })),
  "a dead letter that is sent again stays": alterDecision("retryDeadLetters", () => ({ drop: () => false })),
  "a dead letter is deleted with its envelope": alterDecision("deleteDeadLetters", (_, draft) => ({
    drop: (table, _, key) => {
      const letter = table === "deadLetters" ? draft.getWithoutBody("deadLetters", String(key[0]), String(key[1])) : undefined;
      if (letter) draft.drop("storedMessages", letter.account, letter.messageId);
      return true;
    },
  })),
  "a log row is written to another account": alterDecision("settle", () => ({
    put: { log: (row) => ({ ...row, account: row.account === "acme" ? "umbrella" : "acme" }) },
  })),
};

const toMessageState = (message: Rows["storedMessages"]): MessageState => ({
  account: message.account,
  id: message.id,
  state: "pending",
  dueAt: message.createdAt,
  attempts: 0,
  lostAttempts: 0,
  leasedBy: null,
  host: new URL(message.url).host,
  size: message.body.byteLength,
  reportsOutcome: true,
  queue: null,
  flowControlKey: null,
  slot: null,
  waitlist: null,
  run: null,
  tags: [],
  timeKeys: makeTimeIndexKeys(message),
  endpoint: parseAddress(message.url).endpoint,
});
