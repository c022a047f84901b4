import type { CommandInput } from "../../../../src/engine/store/catalog/commands.ts";
import type { Job } from "../../../../src/operations/jobs/job.ts";
import type { StoredMessage } from "../../../../src/engine/core/model/message.ts";
import type { CommandCall } from "../../../../src/engine/store/store.ts";
import type { ObservedBatch } from "../../../simulation/checkers/observedBatch.ts";
import type { BulkOutcome } from "../../../../src/engine/core/bulk/entries.ts";
import { listDone, mapRetriedByRequests } from "../../../simulation/checkers/bulkOutcomes.ts";
import type { Histories } from "./jobEntries.ts";

/** The next entries of a job, as its runner passes them to the store. */
export type Portion = CommandInput<"continueJob">;
type Answer = { failed?: readonly { id: string }[] };

/**
 * The effect of a portion on an entry, according to the rows. `unclear`: the same batch also removed rows for
 * their age. `became`: the message or the run that replaced it.
 */
export type Effect = { id: string; outcome: "done" | "failed" | "unclear"; became: string | null };
/** A portion that has moved its job, and its effects. */
export type HandledPortion = { call: CommandCall; portion: Portion; effects: Effect[] };

/** Returns the portions in a batch, in their order, that have moved their jobs. */
export function listPortions(observed: ObservedBatch, histories: Histories): HandledPortion[] {
  const { calls, result } = observed;
  if (!calls.some(({ name }) => name === "continueJob")) return [];
  const facts = readFacts(observed);
  const taken = new Set<string>();
  const used = new Set(mapRetriedByRequests(observed).keys());
  return calls.flatMap((call, at) => {
    const reply = result.replies[at];
    if (!reply || !("answer" in reply)) return [];
    if (call.name !== "continueJob") {
      for (const id of listTaken(call, reply.answer)) taken.add(id);
      return [];
    }
    const moved = reply.answer as Job | null;
    if (moved === null || moved.waitsForBudget) return [];
    const portion = call.input as Portion;
    const effects = portion.entries.map(({ id, runId }): Effect => {
      const name = portion.action === "runs.cancel" ? `run ${runId}` : id;
      if (portion.failures || taken.has(name) || !facts.hasChanged(portion, id))
        return { id, outcome: "failed", became: null };
      taken.add(name);
      const became = findSuccessor(portion, id, { observed, histories, used });
      if (became !== null) used.add(became);
      // Without its successor it was removed for its age.
      const isUnclear = facts.isExpiring && !portion.action.endsWith("cancel");
      return { id, outcome: isUnclear ? "unclear" : "done", became };
    });
    return [{ call, portion, effects }];
  });
}

/** Returns what another command of the batch has removed or cancelled, according to its answer. */
function listTaken({ name, input }: CommandCall, answer: unknown): string[] {
  const others = (ids: readonly string[]): string[] => {
    const failed = new Set((answer as Answer).failed?.map(({ id }) => id));
    return ids.filter((id) => !failed.has(id));
  };
  const listers: { readonly [N in CommandCall["name"]]?: () => string[] } = {
    retryDeadLetters: () => (answer as readonly { dlqId: string }[]).map(({ dlqId }) => dlqId),
    resumeRun: () => [(input as CommandInput<"resumeRun">).dlqId],
    bulk: () => {
      const { action, entries } = input as CommandInput<"bulk">;
      const done = listDone(entries, answer as BulkOutcome);
      return action === "runs.cancel" ? done.map((runId) => `run ${runId}`) : done;
    },
    cancel: () => others((input as CommandInput<"cancel">).messageIds),
    cancelRuns: () => others((input as CommandInput<"cancelRuns">).runIds).map((runId) => `run ${runId}`),
  };
  return listers[name]?.() ?? [];
}

function readFacts({ calls, changes }: ObservedBatch) {
  const removed = new Set(changes.deadLetters.flatMap(({ before, after }) => (after ? [] : before?.id)));
  const cancelled = new Set(
    changes.log.flatMap(({ before, after }) =>
      after && !before && after.states.includes("CANCEL_REQUESTED") ? after.messageId : [],
    ),
  );
  const cancelledRuns = new Set(
    changes.runs.flatMap(({ before, after }) =>
      after?.state === "RUN_CANCELED" && before?.state !== "RUN_CANCELED" ? after.id : [],
    ),
  );
  return {
    isExpiring: calls.some(({ name }) => name === "expire" || name === "trim"),
    hasChanged: ({ action }: Portion, id: string): boolean => {
      if (action === "messages.cancel") return cancelled.has(id);
      return action === "runs.cancel" ? cancelledRuns.has(id) : removed.has(id);
    },
  };
}

/** Returns the message or the run that a dead letter has become, from the new rows. */
function findSuccessor(
  { action }: Portion,
  dlqId: string,
  of: { observed: ObservedBatch; histories: Histories; used: ReadonlySet<string> },
): string | null {
  const { changes } = of.observed;
  const deadLetter = changes.deadLetters.find(({ before }) => before?.id === dlqId)?.before;
  if (!deadLetter) return null;
  if (action === "runs.resume" || action === "runs.restart") {
    const isNext = ({ before, after }: (typeof changes.runs)[number]): boolean =>
      !before && after?.origin === deadLetter.run?.key && !of.used.has(after?.id ?? "");
    return changes.runs.find(isNext)?.after?.id ?? null;
  }
  const original = of.histories.get(deadLetter.messageId)?.message;
  if (action !== "dlq.retry" || !original) return null;
  const content = formatContent(original);
  const isCopy = ({ before, after }: (typeof changes.storedMessages)[number]): boolean =>
    !before && after !== undefined && !of.used.has(after.id) && formatContent(after) === content;
  return changes.storedMessages.find(isCopy)?.after?.id ?? null;
}

/** Returns what a retried message has in common with its original. */
const formatContent = ({
  id: _id,
  createdAt: _createdAt,
  notBefore: _notBefore,
  startedAtOnce: _startedAtOnce,
  deduplication: _deduplication,
  body,
  ...message
}: StoredMessage): string => JSON.stringify([message, [...body]]);

/** Reports whether the batch has a portion of a job with this entry. */
export const isNamedByJob = ({ calls }: Pick<ObservedBatch, "calls">, id: string): boolean =>
  calls.some(
    ({ name, input }) => name === "continueJob" && (input as Portion).entries.some((one) => one.id === id),
  );

/** Reports whether a job has continued the failed run `origin` with an action. */
export function isContinuedByJob(
  { calls, result, changes }: ObservedBatch,
  { origin, action }: { origin: string; action: Portion["action"] },
): boolean {
  const dlqId = changes.deadLetters.find(({ before, after }) => !after && before?.run?.key === origin)?.before
    ?.id;
  return calls.some(({ name, input }, at) => {
    const reply = result.replies[at];
    if (name !== "continueJob" || !reply || !("answer" in reply) || !reply.answer) return false;
    const portion = input as Portion;
    return portion.action === action && !portion.failures && portion.entries.some(({ id }) => id === dlqId);
  });
}
