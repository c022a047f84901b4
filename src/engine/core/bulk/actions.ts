import type {
  BulkActionName,
  BulkEntry,
  BulkOutcome,
  BulkPortion,
  BulkSelection,
  DeadLetterActionName,
} from "./entries.ts";
import { readEntryName } from "./entries.ts";
import { deleteDeadLetters, retryDeadLetters } from "../deadLetters/dlq.ts";
import type { Overrides } from "../deadLetters/overrides.ts";
import type { RunOverrides } from "../deadLetters/resume.ts";
import { resumeRun } from "../deadLetters/resume.ts";
import type { Draft, Moment } from "../decision/command.ts";
import type { Filter } from "../model/filters.ts";
import { cancel } from "../sending/cancel.ts";
import type { Cancelled } from "../values/errors.ts";
import { cancelRuns } from "../workflows/end.ts";

/**
 * An action with the entries of one transaction, and the settings that replace those of the messages or runs
 * that are sent again.
 */
export type BulkInput = BulkPortion & {
  action: BulkActionName;
  overrides?: Overrides;
  runOverrides?: RunOverrides;
};

type BulkAction = {
  /** The list of its entries. Runs are listed newest first, messages and dead letters oldest first. */
  list: "messages" | "deadLetters" | "runs";
  /** The maximum number of entries of one transaction. Bodies that are sent again are in memory together. */
  together: number;
  /** Its word in the audit log. */
  word: string;
  /** Whether it sends messages or runs again, which the account must be able to pay for. */
  sendsAgain: boolean;
  decide(input: BulkInput, draft: Draft, moment: Moment): BulkOutcome;
};

/** The actions. A request does one with the entries of its page, and a job with all entries of a list. */
export const bulkActions: Readonly<Record<BulkActionName, BulkAction>> = {
  "dlq.retry": {
    ...{ list: "deadLetters", together: 4, word: "dlq.retry", sendsAgain: true },
    decide: ({ overrides = {}, ...input }, draft, moment) => {
      const dlqIds = listIds(input);
      const retried = retryDeadLetters.decide({ ...input, dlqIds, overrides }, draft, moment);
      const found = new Set(retried.map(({ dlqId }) => dlqId));
      return {
        done: retried.length,
        failures: dlqIds
          .filter((id) => !found.has(id))
          .map((id) => ({ id, reason: "the dead letter does not exist any more" })),
        results: retried.map(({ dlqId, messageId }) => ({ id: dlqId, became: messageId })),
      };
    },
  },
  "dlq.delete": {
    ...{ list: "deadLetters", together: 1_000, word: "dlq.delete", sendsAgain: false },
    decide: (input, draft, moment) => {
      const dlqIds = listIds(input);
      const { deleted, failed = [] } = deleteDeadLetters.decide({ ...input, dlqIds }, draft, moment);
      return { done: deleted, failures: failed, results: [] };
    },
  },
  "runs.resume": {
    ...{ list: "deadLetters", together: 1, word: "dlq.resume", sendsAgain: true },
    decide: continueRuns("failure"),
  },
  "runs.restart": {
    ...{ list: "deadLetters", together: 1, word: "dlq.restart", sendsAgain: true },
    decide: continueRuns("beginning"),
  },
  "runs.cancel": {
    ...{ list: "runs", together: 50, word: "run.cancel", sendsAgain: false },
    decide: ({ account, entries }, draft, moment) => {
      const runIds = entries.map(readEntryName);
      const keys = entries.flatMap(({ id, runId }) => (runId === undefined ? [] : id));
      const named = { account, runIds, ...(keys.length > 0 && { keys }) };
      return toOutcome(cancelRuns.decide(named, draft, moment));
    },
  },
  "messages.cancel": {
    ...{ list: "messages", together: 500, word: "message.cancel", sendsAgain: false },
    decide: (input, draft, moment) =>
      toOutcome(cancel.decide({ account: input.account, messageIds: listIds(input) }, draft, moment)),
  },
};

/** Reports whether a selection is one of dead letters. */
export const selectsDeadLetters = <S extends BulkSelection>(
  selection: S,
): selection is S & { action: DeadLetterActionName; filter: Filter } =>
  bulkActions[selection.action].list === "deadLetters";

const listIds = ({ entries }: { entries: readonly BulkEntry[] }): string[] => entries.map(({ id }) => id);

const toOutcome = ({ cancelled, failed = [] }: Cancelled): BulkOutcome => ({
  done: cancelled,
  failures: failed,
  results: [],
});

function continueRuns(from: "failure" | "beginning"): BulkAction["decide"] {
  return ({ account, entries, logRetention, runOverrides: overrides = {} }, draft, moment) => {
    const results = entries.map(({ id }) => {
      const input = { account, dlqId: id, from, overrides, logRetention };
      const { runId, createdAt } = resumeRun.decide(input, draft, moment);
      return { id, became: runId, createdAt };
    });
    return { done: results.length, failures: [], results };
  };
}
