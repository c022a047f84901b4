import type { Session } from "../session.ts";
import { recordAccounts, recordTokens } from "./accounts.ts";
import { recordDeadLetters } from "./deadLetters.ts";
import { recordErrors, recordLimits } from "./errors.ts";
import { recordKeys } from "./signingKeys.ts";
import { recordMessages } from "./messages.ts";
import { recordBatches, recordOutcomes, recordPublishing } from "./publishing.ts";
import { recordFlowControl, recordGroups, recordQueues, recordSchedules } from "./resources.ts";
import { recordSources } from "./sources.ts";
import { recordFailures, recordRunDeadLetters } from "./runFailures.ts";
import { recordInvoke, recordRuns, recordTriggers } from "./runs.ts";

/** The parts of the script, in the order in which they run. */
export const areas: readonly ((session: Session) => Promise<void>)[] = [
  recordPublishing,
  recordBatches,
  recordOutcomes,
  recordMessages,
  recordGroups,
  recordQueues,
  recordFlowControl,
  recordSchedules,
  recordDeadLetters,
  recordSources,
  recordKeys,
  recordTokens,
  recordErrors,
  recordLimits,
  recordTriggers,
  recordRuns,
  recordInvoke,
  recordFailures,
  recordRunDeadLetters,
  recordAccounts,
];
