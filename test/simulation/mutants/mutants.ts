import type { Draft, Moment, ReadableName, Rows } from "../../../src/engine/core/decision/command.ts";
import type { CommandInput, Commands } from "../../../src/engine/store/catalog/commands.ts";
import { commands } from "../../../src/engine/store/catalog/commands.ts";
import type { BulkOutcome } from "../../../src/engine/core/bulk/entries.ts";
import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import type { MessageState } from "../../../src/engine/core/model/messageState.ts";
import { makeTimeIndexKeys } from "../../../src/engine/core/search/timeIndex.ts";
import { parseAddress } from "../../../src/engine/core/values/url.ts";
import type { Alteration } from "./alterDecision.ts";
import { alterInput, alterDecision } from "./alterDecision.ts";
import { accountLimitMutants } from "./accountLimitMutants.ts";
import { auditMutants } from "../../operations/simulated.ts";
import { budgetMutants } from "./budgetMutants.ts";
import { limiterMutants } from "./limiterMutants.ts";
import { runMutants } from "./runMutants.ts";
import { scopeMutants } from "./scopeMutants.ts";

const never = { messages: () => undefined };
const pending = (row: MessageState): boolean => row.state === "pending";
const ended = (states: readonly string[]): boolean =>
  states.some((state) => ["DELIVERED", "FAILED", "CANCELLED"].includes(state));

/** Alters a settle or renew so that it accepts any caller as the lease holder. */
const ignoreLeaseOwner =
  (held: readonly { messageId: string; attempt: number }[]) =>
  (_: unknown, draft: Draft, moment: Moment): Alteration => ({
    get: ((table: ReadableName, ...key: readonly [string, string]) => {
      const row = draft.get(table, ...key);
      const claim = table === "messages" && held.find(({ messageId }) => messageId === key[1]);
      return row && claim ? { ...row, state: "active", leasedBy: moment.node, attempts: claim.attempt } : row;
    }) as Draft["get"],
  });

/** Faults of usage counts, and of daily request counts. */
const usageMutants: Record<string, Commands> = {
  "the end of a message is not counted": alterDecision("settle", () => ({ count: () => undefined })),
  "a message is counted twice": alterDecision("publish", (_, draft) => ({
    count: (account, counts) => {
      draft.count(account, counts);
      if (counts.messages) draft.count(account, counts);
    },
  })),
  "usage of one account is counted for the other": alterDecision("publish", (_, draft) => ({
    count: (account, counts) => draft.count(account === "acme" ? "umbrella" : "acme", counts),
  })),
  "removed dead letters are still counted": alterDecision("retryDeadLetters", (_, draft) => ({
    count: (account, counts) => draft.count(account, { ...counts, deadLetters: 0 }),
  })),
  "buckets are never removed": alterDecision("expire", () => ({ drop: (table) => table !== "usage" })),
  "daily requests are not stored": alterDecision("publish", () => ({
    put: { dayCounts: () => undefined },
  })),
  "a request is counted twice": alterDecision("publish", () => ({
    put: { dayCounts: (row) => ({ ...row, requests: row.requests + 1 }) },
  })),
};

/** Deliberate faults by name. The simulation must find every one. */
export const mutants: Record<string, Commands> = {
  ...limiterMutants,
  ...usageMutants,
  ...runMutants,
  ...accountLimitMutants,
  ...auditMutants,
  ...scopeMutants,
  ...budgetMutants,
  "a settle ignores who holds the lease": alterDecision("settle", (outcome, draft, moment) =>
    ignoreLeaseOwner([outcome])(outcome, draft, moment),
  ),
  "a renew ignores who holds the lease": alterDecision("renew", ({ leases }, draft, moment) =>
    ignoreLeaseOwner(leases)(null, draft, moment),
  ),
  "a repeated outcome counts twice": alterDecision("settle", () => ({
    drop: (table) => table !== "messages",
  })),
  "a lost lease is not counted": alterDecision("claim", () => ({
    put: { messages: (row) => ({ ...row, lostAttempts: 0 }) },
  })),
  "a lost lease uses up no attempt": alterDecision("claim", (_, draft) => ({
    put: {
      messages: (row) => ({ ...row, attempts: draft.get("messages", row.account, row.id)?.attempts ?? 0 }),
    },
  })),
  "a claim does not lease": alterDecision("claim", () => ({
    put: { messages: (row) => (row.state === "active" ? { ...row, state: "pending", leasedBy: null } : row) },
  })),
  "a claim loses a message that it cannot send": alterDecision("claim", () => ({
    put: { messages: (row) => (row.state === "held" ? { ...row, dueAt: null, state: "pending" } : row) },
  })),
  "a new waitlist is not registered": alterDecision("claim", () => ({
    put: { hostWaitlists: () => undefined },
  })),
  "a waitlist is dropped before its last message": alterDecision("settle", (_, draft) => ({
    put: {
      hostWaitlists: ({ account, host }) => {
        draft.drop("hostWaitlists", account, host);
        return undefined;
      },
    },
  })),
  "a waitlist is never dropped": alterDecision("claim", () => ({
    drop: (table) => table !== "hostWaitlists",
  })),
  "a retry is not counted": alterDecision("settle", () => ({
    put: {
      messages: (row) => (pending(row) && row.attempts > 0 ? { ...row, attempts: row.attempts - 1 } : row),
    },
  })),
  "a retry comes a second early": alterDecision("settle", () => ({
    put: {
      messages: (row) =>
        pending(row) && row.attempts > 0 ? { ...row, dueAt: (row.dueAt ?? 0) - 1000 } : row,
    },
  })),
  "a retry is lost": alterDecision("settle", () => ({
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
  "a failure callback names another dead letter": alterDecision("settle", () => ({
    put: {
      storedMessages: (row) =>
        row.reportsOn?.dlqId ? { ...row, reportsOn: { ...row.reportsOn, dlqId: "another" } } : row,
    },
  })),
  "a callback does not report on its message": alterDecision("settle", () => ({
    put: {
      storedMessages: (row) => (row.reportsOn?.kind === "callback" ? { ...row, reportsOn: null } : row),
    },
  })),
  "the dead letter does not record its failure callback": alterDecision("settle", (_, draft) => ({
    put: { deadLetters: (row) => (draft.inspect("deadLetters", row.account, row.id) ? undefined : row) },
  })),
  "a failure creates no dead letter": alterDecision("settle", () => ({
    put: { deadLetters: () => undefined },
  })),
  "a failed message keeps its deduplication id": alterDecision("settle", () => ({
    drop: (table) => table !== "deduplications",
  })),
  "a deduplication id is not stored": alterDecision("publish", () => ({
    put: { deduplications: () => undefined },
  })),
  "the window of a deduplication id is ignored": alterInput("publish", ({ account, inputs }) => ({
    account,
    inputs: inputs.map((input) => ({ ...input, deduplicationWindow: null })),
  })),
  "deduplication ignores the id": alterInput("publish", ({ account, inputs }) => ({
    account,
    inputs: inputs.map((input) => ({ ...input, deduplication: input.deduplication && "one" })),
  })),
  "a delay is ignored": alterInput("publish", ({ account, inputs }) => ({
    account,
    inputs: inputs.map((input): MessageInput => ({ ...input, delay: null, notBefore: null })),
  })),
  "a publish is answered but not stored": alterDecision("publish", () => ({ put: never })),
  "a cancel is not logged": alterDecision("cancel", () => ({ put: { log: () => undefined } })),
  "a cancelled message is still sent": alterDecision("cancel", () => ({
    drop: (table) => table !== "messages",
  })),
  "a returned lease counts as an attempt": alterDecision("returnLeases", () => ({
    put: { messages: (row) => ({ ...row, attempts: row.attempts + 1 }) },
  })),
  "a lease is not returned": alterDecision("returnLeases", () => ({ put: never })),
  "capacity is not counted": alterDecision("claim", (_, { capacity }) => ({
    capacity: { ...capacity, has: () => true, take: () => true },
  })),
  "expiry of the log also removes unfinished messages": alterDecision("expire", (_, draft) => ({
    moveToKeptLog: (row) => {
      draft.moveToKeptLog(row);
      draft.drop("messages", row.account, row.messageId);
    },
  })),
  "expiry of the log also removes what a dead letter shows": alterDecision("expire", (_, draft) => ({
    moveToKeptLog: (row) => {
      draft.moveToKeptLog(row);
      if (ended(row.states)) draft.drop("storedMessages", row.account, row.messageId);
    },
  })),
  "a kept log loses its end": alterDecision("expire", (_, draft) => ({
    moveToKeptLog: (row) =>
      ended(row.states) ? draft.drop("log", row.account, row.id) : draft.moveToKeptLog(row),
  })),
  "a kept log loses its beginning": alterDecision("expire", (_, draft) => ({
    moveToKeptLog: (row) =>
      ended(row.states) ? draft.moveToKeptLog(row) : draft.drop("log", row.account, row.id),
  })),
  "a kept log is rewritten": alterDecision("expire", (_, draft) => ({
    moveToKeptLog: (row) => draft.moveToKeptLog({ ...row, status: 418 }),
  })),
  "a kept log outlives its message": alterDecision("expire", () => ({
    drop: (table) => table !== "keptLog",
  })),
  "a deleted dead letter leaves its kept log behind": alterDecision("bulk", ({ action }) => ({
    drop: (table) => action !== "dlq.delete" || table !== "keptLog",
  })),
  "stored messages are never removed": alterDecision("expire", () => ({
    drop: (table) => table !== "storedMessages",
  })),
  "deduplication ids are never removed": alterDecision("expire", () => ({
    drop: (table) => table !== "deduplications",
  })),
  "retention ignores the configured time": alterInput("expire", (input) => ({
    ...input,
    retention: { log: input.retention.log / 2, deadLetters: input.retention.deadLetters / 2 },
  })),
  "a retried dead letter stays": alterDecision("retryDeadLetters", () => ({ drop: () => false })),
  "a dead letter is deleted with its stored message": alterDecision("bulk", ({ action }, draft) => ({
    drop: (table, _, key) => {
      const deadLetter =
        action === "dlq.delete" && table === "deadLetters"
          ? draft.inspectWithoutBody("deadLetters", String(key[0]), String(key[1]))
          : undefined;
      if (deadLetter) draft.drop("storedMessages", deadLetter.account, deadLetter.messageId);
      return true;
    },
  })),
  "a bulk action counts what it has left": alterBulk((outcome, { entries }) => ({
    ...outcome,
    done: entries.length,
    failures: [],
  })),
  "a bulk action reports the wrong entry as left": alterBulk(({ failures, ...outcome }, { entries }) => ({
    ...outcome,
    failures: failures.map((failure) => ({ ...failure, id: entries[0]?.id ?? failure.id })),
  })),
  "a log row is written to the other account": alterDecision("settle", () => ({
    put: { log: (row) => ({ ...row, account: row.account === "acme" ? "umbrella" : "acme" }) },
  })),
};

/** Returns the commands, with altered answers of bulk actions. */
function alterBulk(alter: (outcome: BulkOutcome, input: CommandInput<"bulk">) => BulkOutcome): Commands {
  const { decide, ...rest } = commands.bulk;
  return {
    ...commands,
    bulk: { ...rest, decide: (input, ...of) => alter(decide(input, ...of), input) },
  };
}

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
