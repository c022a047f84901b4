import type { Draft, Moment, Rows, TableName } from "../../src/core/decision/command.ts";
import type { Commands } from "../../src/core/commands/index.ts";
import { release } from "../../src/core/admission/admission.ts";
import type { Flow, Letter, MessageState } from "../../src/core/model/message.ts";
import { sightsOf } from "../../src/core/search/timeIndex.ts";
import { addressOf } from "../../src/core/values/url.ts";
import type { Bend } from "./bent.ts";
import { asked, bent } from "./bent.ts";
import { allowanceMutants } from "./allowanceMutants.ts";
import { auditMutants } from "./auditMutants.ts";
import { budgetMutants } from "./budgetMutants.ts";
import { runMutants } from "./runMutants.ts";
import { scopeMutants } from "./scopeMutants.ts";

const never = { messages: () => undefined };
const pending = (row: MessageState): boolean => row.state === "pending";
const ended = (states: readonly string[]): boolean => states.some((state) => ["DELIVERED", "FAILED", "CANCELLED"].includes(state));

/** A settle or renew that takes whoever comes for the owner of the lease. */
const unfenced =
  (held: readonly { messageId: string; attempt: number }[]) =>
  (_: unknown, draft: Draft, moment: Moment): Bend => ({
    get: ((table: TableName, ...key: readonly [string, string]) => {
      const row = draft.get(table, ...key);
      const claim = table === "messages" && held.find(({ messageId }) => messageId === key[1]);
      return row && claim ? { ...row, state: "active", leasedBy: moment.node, attempts: claim.attempt } : row;
    }) as Draft["get"],
  });

const flowBefore = (draft: Draft, { account, id }: Flow): Flow | undefined => draft.get("flows", account, id);

/** A decision that sees flows otherwise than they are. What it saw wrong is not written: `back` puts it right again. */
const seeingFlows =
  (seen: Partial<Flow>, back: (row: Flow, before: Flow) => Flow) =>
  (_: unknown, draft: Draft): Bend => ({
    get: ((table: TableName, ...key: readonly [string, string]) => {
      const row = draft.get(table, ...key);
      return row && table === "flows" ? { ...row, ...seen } : row;
    }) as Draft["get"],
    put: {
      flows: (row) => {
        const before = flowBefore(draft, row);
        return before ? back(row, before) : row;
      },
    },
  });

/** A decision that writes flows otherwise, where there was one before. */
const writingFlows =
  (turn: (row: Flow, before: Flow) => Flow) =>
  (_: unknown, draft: Draft): Bend => ({
    put: {
      flows: (row) => {
        const before = flowBefore(draft, row);
        return before ? turn(row, before) : row;
      },
    },
  });

/** Faults of queues, keys, groups and schedules. */
const flowMutants: Record<string, Commands> = {
  "a slot does not wait for callbacks": bent("settle", () => ({ put: { slots: (row) => ({ ...row, holders: 1 }) } })),
  "a slot is not shared with callbacks": bent("settle", () => ({
    put: { messages: (row) => (row.slot !== null && row.slot !== row.id ? { ...row, slot: null } : row) },
  })),
  "a retry frees the slot": bent("settle", () => ({ put: { messages: (row) => (pending(row) ? { ...row, slot: null } : row) } })),
  "a cancelled message keeps its slot": bent("cancel", () => ({ drop: (table) => table !== "slots" })),
  "a cancelled message gives back its places while it is being sent": bent("cancel", (_, draft, moment) => ({
    put: {
      messages: (row) => {
        draft.drop("messages", row.account, row.id);
        release(draft, moment, row);
        return undefined;
      },
      log: (row) => ({ ...row, states: ["CANCEL_REQUESTED", "CANCELLED"] }),
    },
  })),
  "a message that is cancelled while it is being sent keeps its places for ever": bent("settle", (outcome, draft) => {
    const state = draft.get("messages", outcome.account, outcome.messageId);
    return state?.state === "cancelling"
      ? { put: { flows: () => undefined, slots: () => undefined }, drop: (table) => table === "messages" }
      : {};
  }),
  "what is cancelled elsewhere is not called off": bent("renew", () => ({ callOff: () => undefined })),
  "what is cancelled is sent again when its lease is lost": bent("claim", (_, draft) => ({
    get: ((table: TableName, ...key: readonly [string, string]) => {
      const row = draft.get(table, ...key);
      return row && "state" in row && row.state === "cancelling" ? { ...row, state: "active" } : row;
    }) as Draft["get"],
  })),
  "a cancelled message is still counted in line": bent(
    "cancel",
    writingFlows((row, before) => ({ ...row, waiting: before.waiting })),
  ),
  "a delivery is counted twice": bent(
    "claim",
    writingFlows((row, before) => ({ ...row, running: row.running + (row.running > before.running ? 1 : 0) })),
  ),
  "a delivery that begins at once is not counted": bent(
    "publish",
    writingFlows((row, before) => ({ ...row, running: before.running })),
  ),
  "a lost lease keeps its place under the key": bent(
    "claim",
    writingFlows((row, before) => ({ ...row, running: Math.max(row.running, before.running) })),
  ),
  "a lease that is given back keeps its place under the key": bent("giveBack", () => ({ put: { flows: () => undefined } })),
  "who stands in line is not counted": bent(
    "publish",
    writingFlows((row, before) => ({ ...row, waiting: before.waiting })),
  ),
  "a newcomer overtakes the line": bent(
    "publish",
    seeingFlows({ waiting: 0 }, (row, before) => ({ ...row, waiting: row.waiting + before.waiting })),
  ),
  "a paused flow goes on": bent(
    "claim",
    seeingFlows({ paused: false }, (row, { paused }) => ({ ...row, paused })),
  ),
  "a claim overlooks parallelism": bent(
    "claim",
    seeingFlows({ parallelism: null }, (row, { parallelism }) => ({ ...row, parallelism })),
  ),
  "a claim overlooks the rate": bent(
    "claim",
    seeingFlows({ rate: null }, (row, { rate }) => ({ ...row, rate })),
  ),
  "a window begins anew with every delivery": bent("publish", (_, __, { now }) => ({
    put: { flows: (row) => ({ ...row, windowStart: now, windowUsed: 0 }) },
  })),
  "a window never ends": bent(
    "claim",
    writingFlows((row, { windowStart, windowUsed }) => ({ ...row, windowStart, windowUsed: Math.max(windowUsed, row.windowUsed) })),
  ),
  "a pinned limit follows the messages": bent(
    "publish",
    seeingFlows({ pinned: { parallelism: false, rate: false } }, (row, { pinned }) => ({ ...row, pinned })),
  ),
  "what is resumed is not looked at": bent("resumeFlow", () => ({ put: { flows: (row) => ({ ...row, dueAt: null }) } })),
  "a place that is free is not given on": bent("settle", () => ({ put: { flows: (row) => ({ ...row, dueAt: null }) } })),
  "a key is forgotten at once": bent("settle", (_, __, { now }) => ({
    put: { flows: (row) => ({ ...row, dueAt: row.dueAt === null ? null : now }) },
  })),
  "a queue is deleted with those who wait in it": bent("deleteQueue", (_, draft) => ({
    get: ((table: TableName, ...key: readonly [string, string]) => {
      const row = draft.get(table, ...key);
      return row && table === "flows" ? { ...row, running: 0, waiting: 0 } : row;
    }) as Draft["get"],
  })),
  "a group's first endpoint is left out": bent("publish", (_, draft) => ({
    get: ((table: TableName, ...key: readonly [string, string]) => {
      const group = table === "groups" ? draft.get("groups", ...key) : undefined;
      return group ? { ...group, endpoints: group.endpoints.slice(1) } : draft.get(table, ...key);
    }) as Draft["get"],
  })),
  "a schedule fires again and again": bent("claim", (_, draft) => ({
    put: { schedules: (row) => ({ ...row, dueAt: draft.get("schedules", row.account, row.id)?.dueAt ?? null }) },
  })),
  "a schedule skips a time": bent("claim", () => ({
    put: { schedules: (row) => ({ ...row, dueAt: row.dueAt === null ? null : row.dueAt + 60_000 }) },
  })),
  "a paused schedule fires": bent("pauseSchedule", (_, draft) => ({
    put: { schedules: (row) => ({ ...row, dueAt: draft.get("schedules", row.account, row.id)?.dueAt ?? null }) },
  })),
};

/** Faults of what is counted, and of the requests of a day. */
const usageMutants: Record<string, Commands> = {
  "an end is not counted": bent("settle", () => ({ count: () => undefined })),
  "a message is counted twice": bent("publish", (_, draft) => ({
    count: (account, counts) => {
      draft.count(account, counts);
      if (counts.messages) draft.count(account, counts);
    },
  })),
  "what one account uses is counted for the other": bent("publish", (_, draft) => ({
    count: (account, counts) => draft.count(account === "acme" ? "umbrella" : "acme", counts),
  })),
  "dead letters that go are still counted": bent("retryDeadLetters", (_, draft) => ({
    count: (account, counts) => draft.count(account, { ...counts, deadLetters: 0 }),
  })),
  "buckets are never removed": bent("expire", () => ({ drop: (table) => table !== "usage" })),
  "the requests of a day are forgotten": bent("publish", () => ({ put: { dayCounts: () => undefined } })),
  "a request counts twice": bent("publish", () => ({ put: { dayCounts: (row) => ({ ...row, requests: row.requests + 1 }) } })),
};

/** Faults that were planted on purpose, by what is wrong with them. The simulation must find every one. */
export const mutants: Record<string, Commands> = {
  ...flowMutants,
  ...usageMutants,
  ...runMutants,
  ...allowanceMutants,
  ...auditMutants,
  ...scopeMutants,
  ...budgetMutants,
  "a settle ignores whose lease it is": bent("settle", (outcome, draft, moment) => unfenced([outcome])(outcome, draft, moment)),
  "a renew ignores whose lease it is": bent("renew", ({ held }, draft, moment) => unfenced(held)(null, draft, moment)),
  "a report that came twice counts twice": bent("settle", () => ({ drop: (table) => table !== "messages" })),
  "a lost lease is not counted": bent("claim", () => ({ put: { messages: (row) => ({ ...row, lost: 0 }) } })),
  "a lost lease uses up no attempt": bent("claim", (_, draft) => ({
    put: { messages: (row) => ({ ...row, attempts: draft.get("messages", row.account, row.id)?.attempts ?? 0 }) },
  })),
  "a claim forgets to lease": bent("claim", () => ({
    put: { messages: (row) => (row.state === "active" ? { ...row, state: "pending", leasedBy: null } : row) },
  })),
  "a claim forgets the message it cannot send": bent("claim", () => ({
    put: { messages: (row) => (row.state === "held" ? { ...row, dueAt: null, state: "pending" } : row) },
  })),
  "a line is forgotten when it is made": bent("claim", () => ({ put: { lines: () => undefined } })),
  "a line is dropped before its last message": bent("settle", (_, draft) => ({
    put: {
      lines: ({ account, host }) => {
        draft.drop("lines", account, host);
        return undefined;
      },
    },
  })),
  "a line is never dropped": bent("claim", () => ({ drop: (table) => table !== "lines" })),
  "a retry does not count": bent("settle", () => ({
    put: { messages: (row) => (pending(row) && row.attempts > 0 ? { ...row, attempts: row.attempts - 1 } : row) },
  })),
  "a retry comes a second early": bent("settle", () => ({
    put: { messages: (row) => (pending(row) && row.attempts > 0 ? { ...row, dueAt: (row.dueAt ?? 0) - 1000 } : row) },
  })),
  "a retry is forgotten": bent("settle", () => ({
    put: { messages: (row) => (pending(row) && row.attempts > 0 ? { ...row, dueAt: null } : row) },
  })),
  "a failure callback is sent twice": bent("settle", (_, draft, moment) => ({
    put: {
      envelopes: (row) => {
        const id = row.tells?.kind === "failureCallback" ? moment.newId("msg") : null;
        if (id !== null) draft.put("envelopes", { ...row, id, startedAtOnce: false });
        if (id !== null) draft.put("messages", stateOf({ ...row, id }));
        return row;
      },
    },
  })),
  "a failure callback names another entry": bent("settle", () => ({
    put: { envelopes: (row) => (row.tells?.dlqId ? { ...row, tells: { ...row.tells, dlqId: "another" } } : row) },
  })),
  "a callback is forgotten": bent("settle", () => ({
    put: { envelopes: (row) => (row.tells?.kind === "callback" ? { ...row, tells: null } : row) },
  })),
  "the dead letter does not hear of its failure callback": bent("settle", (_, draft) => ({
    put: { deadLetters: (row) => (draft.get("deadLetters", row.account, row.id) ? undefined : row) },
  })),
  "a failure has no dead letter": bent("settle", () => ({ put: { deadLetters: () => undefined } })),
  "a failed message keeps its deduplication id": bent("settle", () => ({ drop: (table) => table !== "deduplications" })),
  "a deduplication id is never remembered": bent("publish", () => ({ put: { deduplications: () => undefined } })),
  "the window of a deduplication id is not looked at": asked("publish", ({ account, letters }) => ({
    account,
    letters: letters.map((letter) => ({ ...letter, deduplicationWindow: null })),
  })),
  "deduplication does not see who asks": asked("publish", ({ account, letters }) => ({
    account,
    letters: letters.map((letter) => ({ ...letter, deduplication: letter.deduplication && "one" })),
  })),
  "a delay is ignored": asked("publish", ({ account, letters }) => ({
    account,
    letters: letters.map((letter): Letter => ({ ...letter, delay: null, notBefore: null })),
  })),
  "a publish is answered and not kept": bent("publish", () => ({ put: never })),
  "a cancel is not logged": bent("cancel", () => ({ put: { log: () => undefined } })),
  "a cancelled message is sent all the same": bent("cancel", () => ({ drop: (table) => table !== "messages" })),
  "a lease that is given back counts as an attempt": bent("giveBack", () => ({
    put: { messages: (row) => ({ ...row, attempts: row.attempts + 1 }) },
  })),
  "a lease is not given back": bent("giveBack", () => ({ put: never })),
  "hands are not counted": bent("claim", () => ({ hasHand: () => true, takeHand: () => true })),
  "expired log takes unfinished messages along": bent("expire", (_, draft) => ({
    keep: (row) => {
      draft.keep(row);
      draft.drop("messages", row.account, row.messageId);
    },
  })),
  "expired log takes along what a dead letter shows": bent("expire", (_, draft) => ({
    keep: (row) => {
      draft.keep(row);
      if (ended(row.states)) draft.drop("envelopes", row.account, row.messageId);
    },
  })),
  "a log loses its end": bent("expire", (_, draft) => ({
    keep: (row) => (ended(row.states) ? draft.drop("log", row.account, row.id) : draft.keep(row)),
  })),
  "a log loses its beginning": bent("expire", (_, draft) => ({
    keep: (row) => (ended(row.states) ? draft.keep(row) : draft.drop("log", row.account, row.id)),
  })),
  "what is kept of a log is rewritten": bent("expire", (_, draft) => ({ keep: (row) => draft.keep({ ...row, status: 418 }) })),
  "what is kept of a log outlives its message": bent("expire", () => ({ drop: (table) => table !== "keptLog" })),
  "a dead letter that is deleted leaves its log behind": bent("deleteDeadLetters", () => ({ drop: (table) => table !== "keptLog" })),
  "envelopes are never removed": bent("expire", () => ({ drop: (table) => table !== "envelopes" })),
  "deduplication ids are never removed": bent("expire", () => ({ drop: (table) => table !== "deduplications" })),
  "retention asks for the time of the node": asked("expire", (input) => ({
    ...input,
    retention: { log: input.retention.log / 2, deadLetters: input.retention.deadLetters / 2 },
  })),
  "a dead letter that is sent again stays": bent("retryDeadLetters", () => ({ drop: () => false })),
  "a dead letter is deleted with its envelope": bent("deleteDeadLetters", (_, draft) => ({
    drop: (table, _, key) => {
      const letter = table === "deadLetters" ? draft.outline("deadLetters", String(key[0]), String(key[1])) : undefined;
      if (letter) draft.drop("envelopes", letter.account, letter.messageId);
      return true;
    },
  })),
  "a log row is written to another account": bent("settle", () => ({
    put: { log: (row) => ({ ...row, account: row.account === "acme" ? "umbrella" : "acme" }) },
  })),
};

const stateOf = (envelope: Rows["envelopes"]): MessageState => ({
  ...{ account: envelope.account, id: envelope.id, state: "pending", dueAt: envelope.createdAt, attempts: 0, lost: 0 },
  ...{ leasedBy: null, host: new URL(envelope.url).host, size: envelope.body.byteLength, tells: true },
  ...{ queue: null, flowKey: null, slot: null, line: null, run: null, marks: [], sights: sightsOf(envelope) },
  endpoint: addressOf(envelope.url).endpoint,
});
