import type { Actor } from "../../../../src/engine/core/model/auditEntry.ts";
import type { BulkEntry, BulkOutcome } from "../../../../src/engine/core/bulk/entries.ts";
import type { CommandName } from "../../../../src/engine/store/catalog/commands.ts";
import type { Retention } from "../../../../src/engine/core/accounts/retention.ts";
import type { CommandCall } from "../../../../src/engine/store/store.ts";
import type { ObservedBatch, AssertHolds } from "../../../simulation/checkers/observedBatch.ts";
import type { Changes } from "../../../simulation/storage/changes.ts";

type AuditCheckContext = {
  assertHolds: AssertHolds;
  now: number;
  retention: Retention;
  cover: (what: string) => unknown;
};

type CommandInput = {
  account: string;
  id?: string;
  name?: string;
  key?: string;
  dlqId?: string;
  from?: string;
} & Record<string, unknown>;
type ExpectedEntry = { what: string; object: string | null; count?: number };

/**
 * The audit entry of each command, according to its answer, or null if nothing was done. All other commands
 * have none.
 */
const expectedEntries: {
  readonly [N in CommandName]?: (asked: CommandInput, answer: never) => ExpectedEntry | null;
} = {
  cancel: ({ messageIds }, { cancelled }: { cancelled: number }) =>
    makeBulkEntry("message.cancel", messageIds, cancelled),
  cancelRuns: ({ runIds }, { cancelled }: { cancelled: number }) =>
    makeBulkEntry("run.cancel", runIds, cancelled),
  retryDeadLetters: ({ dlqIds }, retried: readonly unknown[]) =>
    makeBulkEntry("dlq.retry", dlqIds, retried.length),
  bulk: ({ action, entries }, { done }: BulkOutcome) => {
    const names = (entries as readonly BulkEntry[]).map(({ id, runId }) => runId ?? id);
    const entry = makeBulkEntry(actionWords[String(action)] ?? "", names, done);
    // A transaction continues one run only.
    const isOfOne = action === "runs.resume" || action === "runs.restart";
    return entry && isOfOne ? { what: entry.what, object: entry.object } : entry;
  },
  replayDeadLetter: ({ dlqId }) => ({ what: "dlq.replay", object: String(dlqId) }),
  resumeRun: ({ from, dlqId }) => ({
    what: from === "beginning" ? "dlq.restart" : "dlq.resume",
    object: String(dlqId),
  }),
  createJob: ({ action }, { id }: { id: string }) => ({
    what: actionWords[String(action)] ?? "",
    object: id,
  }),
  stopJob: ({ id }, stopped: { job: { done: number }; stopped: boolean } | null) =>
    stopped?.stopped ? { what: "job.stop", object: String(id), count: stopped.job.done } : null,
  repeatFailureCallback: ({ dlqId }) => ({ what: "dlq.callback", object: String(dlqId) }),
  changeAccount: () => ({ what: "account.change", object: null }),
  rotateKeys: () => ({ what: "signingKey.rotate", object: null }),
  addEndpoints: ({ name, endpoints }) =>
    makeBulkEntry("group.addEndpoints", [name], (endpoints as readonly unknown[]).length),
  removeEndpoints: ({ name }, { removed }: { removed: number }) =>
    makeBulkEntry("group.removeEndpoints", [name], removed),
  deleteGroup: ({ name }, { deleted }: { deleted: number }) =>
    deleted === 1 ? { what: "group.delete", object: String(name) } : null,
  createSchedule: (_, { scheduleId, deduplicated }: { scheduleId: string; deduplicated?: boolean }) =>
    deduplicated ? null : { what: "schedule.create", object: scheduleId },
  deleteSchedule: ({ id }, { deleted }: { deleted: boolean }) =>
    deleted ? { what: "schedule.delete", object: String(id) } : null,
  pauseSchedule: ({ id }) => ({ what: "schedule.pause", object: String(id) }),
  resumeSchedule: ({ id }) => ({ what: "schedule.resume", object: String(id) }),
  endAttempts: ({ attempts }, { ended }: { ended: number }) =>
    ended === 0
      ? null
      : {
          what: "message.endAttempt",
          object: String((attempts as { messageId: string }[])[0]?.messageId),
          count: ended,
        },
  sendNow: ({ messageId }, sent: { changed: boolean } | null) =>
    sent?.changed ? { what: "message.sendNow", object: String(messageId) } : null,
  runSchedule: ({ id }, { messages }: { messages: readonly unknown[] }) =>
    makeBulkEntry("schedule.run", [id], messages.length),
  upsertQueue: ({ name }) => ({ what: "queue.set", object: String(name) }),
  deleteQueue: ({ name }, { deleted }: { deleted: boolean }) =>
    deleted ? { what: "queue.delete", object: String(name) } : null,
  pauseLimiter: ({ id }) => makeLimiterEntry(String(id), "pause"),
  resumeLimiter: ({ id }, limiter: object | null) => limiter && makeLimiterEntry(String(id), "resume"),
  pinFlowControl: ({ key }) => ({ what: "flowControl.pin", object: String(key) }),
  unpinFlowControl: ({ key }, limiter: object | null) =>
    limiter && { what: "flowControl.unpin", object: String(key) },
  resetRate: ({ key }, limiter: object | null) =>
    limiter && { what: "flowControl.reset", object: String(key) },
};

/** How the audit log names each action, and the start of a job with it. Its portions have no entries. */
const actionWords: Readonly<Record<string, string>> = {
  "dlq.retry": "dlq.retry",
  "dlq.delete": "dlq.delete",
  "runs.resume": "dlq.resume",
  "runs.restart": "dlq.restart",
  "runs.cancel": "run.cancel",
  "messages.cancel": "message.cancel",
};

const makeBulkEntry = (what: string, named: unknown, count: number): ExpectedEntry | null =>
  count === 0 ? null : { what, object: String((named as readonly unknown[])[0]), count };

function makeLimiterEntry(id: string, verb: string): ExpectedEntry {
  const [kind = "", ...name] = id.split(":");
  return { what: `${kind === "key" ? "flowControl" : "queue"}.${verb}`, object: name.join(":") };
}

/**
 * Reports whether the answer shows that a command has changed something. For the others only the rows show
 * it, if the batch has no other command.
 */
const isAlwaysVisible = ({ name }: CommandCall): boolean =>
  !["pauseLimiter", "resumeLimiter", "pauseSchedule", "resumeSchedule", "deleteQueue"].includes(name);

/**
 * Checks the audit log. Each request has its own actor, so the entries of an actor show what it has done:
 * each action once, with the change itself, and nothing else.
 */
export class AuditLogChecker {
  /** The number of actors so far. Each request has another token. */
  #asked = 0;

  newActor(): Actor {
    return { kind: "token", token: `tok_${++this.#asked}`, address: `192.0.2.${this.#asked % 250}` };
  }

  check(
    { calls, result, changes }: ObservedBatch,
    { assertHolds, now, retention, cover }: AuditCheckContext,
  ): void {
    const lines = calls
      .map((call, at) => ({ call, line: expectedEntry(call, result.replies[at]) }))
      .filter(({ line }) => line !== null);
    const found: string[] = [];
    for (const { before, after } of changes.audit) {
      assertHolds(
        before === undefined || after === undefined,
        `the audit log is not rewritten: ${before?.id}`,
      );
      if (before && !after) {
        const isPast = before.time < now - (retention.audit ?? 0);
        assertHolds(
          isPast && calls.some(({ name }) => name === "expire"),
          `the audit log is kept for its time: ${before.id}`,
        );
        cover("audit log expired");
      }
      if (!after) continue;
      assertHolds(after.time === now, `an action is recorded with its time: ${after.id}`);
      found.push(JSON.stringify([after.account, after.what, after.object, after.count ?? null, after.by]));
      cover(`audit ${after.what}`);
    }
    assertHolds(new Set(found).size === found.length, `an action is recorded once: ${found.join(" ")}`);
    for (const one of found)
      assertHolds(
        lines.some(({ line }) => line === one),
        `a recorded action was done: ${one}`,
      );
    for (const { call, line } of lines)
      if (isAlwaysVisible(call))
        assertHolds(found.includes(line ?? ""), `an action is recorded with its actor: ${line}`);
    const [only, ...others] = calls;
    // A queue that cannot be deleted still releases the slots of finished messages. An account may be given
    // the limits that it has.
    const isOther = only?.name === "changeAccount" || (only?.name === "deleteQueue" && lines.length === 0);
    if (!only || others.length > 0 || isOther || !isNamed(only) || expectedEntries[only.name] === undefined)
      return;
    assertHolds(
      hasChanged(changes) === found.length > 0,
      `exactly the recorded actions have changed something: ${only.name}`,
    );
  }
}

const isNamed = ({ input }: CommandCall): boolean => (input as { by?: Actor }).by !== undefined;

/** Returns the audit entry that a call must create, or null. */
function expectedEntry(
  { name, input }: CommandCall,
  reply: ObservedBatch["result"]["replies"][number] | undefined,
): string | null {
  const { by, ...asked } = input as CommandInput & { by?: Actor };
  if (!by || !reply || !("answer" in reply)) return null;
  const done = expectedEntries[name]?.(asked, reply.answer as never) ?? null;
  return done && JSON.stringify([asked.account, done.what, done.object, done.count ?? null, by]);
}

/** Reports whether anything has changed besides the audit log. */
const hasChanged = ({ audit: _audit, usage: _usage, ...changes }: Changes): boolean =>
  Object.values(changes).some((list) => list.length > 0);
