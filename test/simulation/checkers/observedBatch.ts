import { endedByOperator } from "../../../src/engine/core/model/attempt.ts";
import {
  givenBackError,
  notPulledError,
  returnedError,
} from "../../../src/engine/core/sending/endedAttempt.ts";
import type { DeliveryCapacity } from "../../../src/engine/core/admission/capacity.ts";
import type { TableName } from "../../../src/engine/core/decision/command.ts";
import type { LogRow } from "../../../src/engine/core/model/logRow.ts";
import type { MessageState } from "../../../src/engine/core/model/messageState.ts";
import type { CommandInput } from "../../../src/engine/store/catalog/commands.ts";
import type { BatchResult, CommandCall } from "../../../src/engine/store/store.ts";
import type { Changes } from "../storage/changes.ts";

/** The commands of a batch and their results. */
export type Batch = {
  node: string;
  calls: readonly CommandCall[];
  result: BatchResult;
  capacity: DeliveryCapacity;
  /** The rows that other nodes wrote while the batch ran, by table and key. */
  rowsMet?: ReadonlySet<string> | undefined;
};

/** A batch with its changes. */
export type ObservedBatch = Batch & { changes: Changes };

/** Returns the keys of the rows of a table that other nodes wrote while the batch ran. */
export const listKeysMet = ({ rowsMet }: Batch, table: TableName): string[] =>
  [...(rowsMet ?? [])].flatMap((name) =>
    name.startsWith(`${table}\n`) ? [name.slice(table.length + 1)] : [],
  );

/** Checks an invariant. If it does not hold, the run has found a fault. */
export type AssertHolds = (holds: boolean, promise: string) => void;

/** Reports whether a log row records an expired lease, after which the message is sent again. */
export const isLost = ({ states, error }: LogRow): boolean =>
  states.includes("RETRY") && error !== null && error.startsWith("no report: ");

/**
 * Reports whether a log row records a call that its node has reported, and in which steps ran on without an
 * end. It counts as lost, because no step has failed.
 */
const isRepeatedCall = (row: LogRow): boolean =>
  isLost(row) && !/^no report: (?:the server|node|the lease) /.test(row.error ?? "");

/** Reports whether a log row records an attempt that an operator ended. */
export const isEndedByOperator = ({ states, error }: LogRow): boolean =>
  states.includes("RETRY") && error === endedByOperator;

/** Reports whether a log row records an attempt that no puller received or kept. */
export const isNotPulled = ({ states, error }: LogRow): boolean =>
  states.includes("RETRY") && [notPulledError, returnedError, givenBackError].includes(error ?? "");

/** Reports whether a batch leased the message. */
export const isLease = (
  before: MessageState | undefined,
  after: MessageState | undefined,
): after is MessageState =>
  after !== undefined &&
  after.leasedBy !== null &&
  (!before || before.leasedBy === null || before.attempts !== after.attempts);

/** Returns the steps that were posted in the short form and reported as stored. */
export const listStepsRunOn = ({
  calls,
  result,
}: Pick<Batch, "calls" | "result">): CommandInput<"runOnStep">[] =>
  calls.flatMap(({ name, input }, index) => {
    const reply = result.replies[index];
    if (name !== "runOnStep" || !reply || !("answer" in reply)) return [];
    const { runOn } = reply.answer as { runOn: boolean };
    return runOn ? [input as CommandInput<"runOnStep">] : [];
  });

/** Reports whether a batch changes rows of runs other than their own. */
export const concernsRuns = ({ changes }: ObservedBatch): boolean =>
  changes.messages.some(({ before, after }) => (after ?? before)?.run !== null) ||
  changes.deadLetters.some(({ after }) => after?.run !== undefined) ||
  changes.storedMessages.some(({ after }) => after?.run !== undefined);

/** Reports whether a log row ends an attempt that its node has reported. */
export const endsReportedAttempt = (row: LogRow): boolean =>
  ["ERROR", "DELIVERED", "CANCELLED"].includes(row.states[0] ?? "") && (!isLost(row) || isRepeatedCall(row));
