import type { Recorder } from "../recorder.ts";
import { showAccounts, showAdministration, showHealth } from "./administration.ts";
import { showAuditLog, showDeadLetters, showJobs, showLog, showOverview } from "./history.ts";
import { showOutboxes } from "./outboxes.ts";
import {
  showFlowControl,
  showGroups,
  showMessages,
  showPublishing,
  showPulls,
  showQueues,
  showSchedules,
} from "./publishing.ts";
import { showAlerts, showKeys, showSources, showTokens } from "./security.ts";
import { showEvents, showFailedRuns, showHooks, showRuns } from "./workflows.ts";

/** The parts of the script, in the order in which they run. The first one ends the hold of the server. */
export const groups: readonly ((recorder: Recorder) => Promise<void>)[] = [
  showAdministration,
  showAccounts,
  showHealth,
  showPublishing,
  showGroups,
  showMessages,
  showPulls,
  showQueues,
  showFlowControl,
  showSchedules,
  showDeadLetters,
  showLog,
  showJobs,
  showOverview,
  showAuditLog,
  showKeys,
  showTokens,
  showAlerts,
  showSources,
  showOutboxes,
  showRuns,
  showEvents,
  showHooks,
  showFailedRuns,
];
