import type { Retried } from "../../../src/engine/core/deadLetters/dlq.ts";
import type { BulkEntry, BulkOutcome } from "../../../src/engine/core/bulk/entries.ts";
import type { CommandInput } from "../../../src/engine/store/catalog/commands.ts";
import type { Change, Changes, Tables } from "../storage/changes.ts";
import type { AssertHolds, ObservedBatch } from "./observedBatch.ts";

type BulkCheckContext = { assertHolds: AssertHolds; tables: Tables; cover: (what: string) => unknown };
type BulkCall = { input: CommandInput<"bulk">; outcome: BulkOutcome };

/** Returns the bulk actions of a batch that were not refused, with their answers. */
const listBulkCalls = ({ calls, result }: ObservedBatch): BulkCall[] =>
  calls.flatMap(({ name, input }, at) => {
    const reply = result.replies[at];
    if (name !== "bulk" || !reply || !("answer" in reply)) return [];
    return { input: input as CommandInput<"bulk">, outcome: reply.answer as BulkOutcome };
  });

/** Returns the names of the entries that a bulk action has changed, according to its answer. */
export function listDone(entries: readonly BulkEntry[], { failures }: BulkOutcome): string[] {
  const failed = new Set(failures.map(({ id }) => id));
  return [...new Set(entries.map(nameOf))].filter((name) => !failed.has(name));
}

const nameOf = ({ id, runId }: BulkEntry): string => runId ?? id;

/** Returns the messages made by retrying dead letters on request, with the dead letters. */
export function mapRetriedByRequests(observed: ObservedBatch): Map<string, string> {
  const retried = observed.calls.flatMap(({ name }, at) => {
    const reply = observed.result.replies[at];
    return name === "retryDeadLetters" && reply && "answer" in reply ? (reply.answer as Retried[]) : [];
  });
  const inBulk = listBulkCalls(observed).flatMap(({ input, outcome }) =>
    input.action === "dlq.retry" ? outcome.results : [],
  );
  return new Map([
    ...retried.map(({ messageId, dlqId }) => [messageId, dlqId] as const),
    ...inBulk.map(({ became, id }) => [became, id] as const),
  ]);
}

/** Reports whether a bulk action of the batch, other than a cancellation, names this dead letter. */
export const isNamedByBulk = ({ calls }: Pick<ObservedBatch, "calls">, dlqId: string): boolean =>
  calls.some(({ name, input }) => {
    if (name !== "bulk") return false;
    const { action, entries } = input as CommandInput<"bulk">;
    return !action.endsWith(".cancel") && entries.some(({ id }) => id === dlqId);
  });

/** Reports whether a request of the batch has resumed a failed run as this run. */
export const isResumedByRequest = (observed: ObservedBatch, runId: string): boolean =>
  listBulkCalls(observed).some(
    ({ input, outcome }) =>
      input.action === "runs.resume" && outcome.results.some(({ became }) => became === runId),
  ) ||
  observed.calls.some(({ name, input }, at) => {
    const reply = observed.result.replies[at];
    if (name !== "resumeRun" || !reply || !("answer" in reply)) return false;
    const isSame = (reply.answer as { runId: string }).runId === runId;
    return isSame && (input as CommandInput<"resumeRun">).from === "failure";
  });

/**
 * Checks the answers of bulk actions: each name is either done or has a failure. The action has changed the
 * row of each name that is done, and could not have changed those of the others.
 */
export function checkBulkOutcomes(observed: ObservedBatch, context: BulkCheckContext): void {
  const { assertHolds, cover } = context;
  for (const { input, outcome } of listBulkCalls(observed)) {
    const { action, entries } = input;
    const { done, failures, results } = outcome;
    const names = new Set(entries.map(nameOf));
    const doneNames = listDone(entries, outcome);
    const isCounted = done === doneNames.length && failures.every(({ id }) => names.has(id));
    assertHolds(isCounted, `a bulk action counts its entries: ${action} ${JSON.stringify(outcome)}`);
    for (const name of names) {
      const rows = entries.filter((entry) => nameOf(entry) === name);
      const facts = rows.map((entry) => readFacts(input, entry, { observed, tables: context.tables }));
      const isDone = doneNames.includes(name);
      assertHolds(!facts.some(({ isLeft }) => isLeft), `a bulk action leaves no entry: ${action} ${name}`);
      assertHolds(
        !isDone || facts.some(({ hasChanged }) => hasChanged),
        `an entry that a bulk action reports as done has changed: ${action} ${name}`,
      );
      cover(isDone ? `bulk ${action}` : "bulk leaves an entry unchanged");
      if (rows.length > 1) cover("bulk names an entry twice");
      if (isDone && rows.some(({ runId }) => runId !== undefined)) cover("bulk cancels a run by its key");
    }
    const sent = results.map(({ id, became }) => [id, hasBegun(became, observed.changes)] as const);
    const isSentAgain = action === "dlq.retry" || action === "runs.resume" || action === "runs.restart";
    assertHolds(
      sent.every(([id, begun]) => begun && doneNames.includes(id)) &&
        sent.length === (isSentAgain ? done : 0),
      `a bulk action reports what each entry became: ${action} ${JSON.stringify(outcome)}`,
    );
  }
}

/** Reports whether the batch has created the message or the run that an entry became. */
const hasBegun = (became: string, { storedMessages, runs }: Changes): boolean =>
  storedMessages.some(({ before, after }) => !before && after?.id === became) ||
  runs.some(({ before, after }) => !before && after?.runId === became);

type Observed = { observed: ObservedBatch; tables: Tables };

/** Returns whether the batch has done the action with an entry, and whether it could still be done. */
function readFacts(
  { account, action }: CommandInput<"bulk">,
  { id, runId }: BulkEntry,
  { observed: { changes }, tables }: Observed,
): { hasChanged: boolean; isLeft: boolean } {
  if (action === "runs.cancel") {
    const isOwn = (run: Run | undefined): boolean =>
      run?.account === account && (runId === undefined ? run.runId === id : run.id === id);
    const isOngoing = (run: Run | undefined): boolean => isOwn(run) && run?.state === "RUN_STARTED";
    const isNew = (key: string): boolean =>
      changes.runs.some(({ before, after }) => !before && after?.id === key);
    return {
      hasChanged: changes.runs.some(
        ({ before, after }) =>
          isOwn(after) && after?.state === "RUN_CANCELED" && before?.state !== after.state,
      ),
      // A later command of the batch may have started a run with the same run id.
      isLeft: [...tables.runs.values()].some((run) => isOngoing(run) && !isNew(run.id)),
    };
  }
  if (action === "messages.cancel") {
    const isPending = (state: Change<"messages">["after"]): boolean =>
      state?.account === account && state.id === id && state.run === null && !isCalledOff(state);
    return {
      hasChanged: changes.messages.some(({ before, after }) => isPending(before) && !isPending(after)),
      isLeft: isPending(tables.messages.get(`${account}\n${id}`)),
    };
  }
  const isEntry = (deadLetter: Change<"deadLetters">["after"]): boolean =>
    deadLetter?.account === account && deadLetter.id === id && (action !== "dlq.retry" || !deadLetter.run);
  return {
    hasChanged: changes.deadLetters.some(({ before, after }) => isEntry(before) && !after),
    isLeft: isEntry(tables.deadLetters.get(`${account}\n${id}`)),
  };
}

type Run = NonNullable<Change<"runs">["after"]>;

const isCalledOff = ({ state }: NonNullable<Change<"messages">["after"]>): boolean =>
  state === "cancelling" || state === "settled";
