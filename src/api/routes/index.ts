import type { Route } from "../route/route.ts";
import { accounts } from "./accounts/accounts.ts";
import { alerts } from "./accounts/alerts.ts";
import { serverAlerts } from "./accounts/serverAlerts.ts";
import { admin } from "./accounts/admin.ts";
import { audit } from "./accounts/audit.ts";
import { batch } from "./messages/batch.ts";
import { dlq } from "./deadLetters/dlq.ts";
import { enqueue } from "./messages/enqueue.ts";
import { flowControl } from "./messages/flowControl.ts";
import { groups } from "./messages/groups.ts";
import { healthReports } from "./accounts/health.ts";
import { holders } from "./messages/holders.ts";
import { hooks } from "./messages/hooks.ts";
import { sourceCalls } from "./messages/sourceCalls.ts";
import { jobs } from "./jobs/jobs.ts";
import { signingKeys } from "./accounts/keys.ts";
import { log } from "./messages/log.ts";
import { messages } from "./messages/messages.ts";
import { publish } from "./messages/publish.ts";
import { queues } from "./messages/queues.ts";
import { runList } from "./workflows/runList.ts";
import { runLogs } from "./workflows/runLogs.ts";
import { runs } from "./workflows/runs.ts";
import { runStatus } from "./workflows/runStatus.ts";
import { schedules } from "./messages/schedules.ts";
import { sources } from "./messages/sources.ts";
import { statistics } from "./accounts/statistics.ts";
import { tokens } from "./accounts/tokens.ts";
import { me } from "./situation/me.ts";
import { nodes } from "./situation/nodes.ts";
import { metrics } from "./situation/metrics.ts";
import { overviews } from "./situation/overview.ts";
import { unfinishedMessages } from "./situation/unfinished.ts";
import { trigger } from "./workflows/trigger.ts";
import { waitedEvents } from "./workflows/waitedEvents.ts";
import { waits } from "./workflows/waits.ts";
import { workflowDlq } from "./workflows/workflowDlq.ts";

/** All routes of the HTTP API. */
export const routes: readonly Route[] = [
  publish,
  enqueue,
  batch,
  ...groups,
  ...messages,
  ...unfinishedMessages,
  ...overviews,
  metrics,
  me,
  ...dlq,
  ...log,
  ...audit,
  ...schedules,
  ...queues,
  ...flowControl,
  ...holders,
  ...signingKeys,
  ...tokens,
  ...trigger,
  ...runs,
  runList,
  ...runLogs,
  runStatus,
  waitedEvents,
  ...waits,
  ...workflowDlq,
  ...jobs,
  ...alerts,
  ...serverAlerts,
  ...hooks,
  ...sources,
  ...sourceCalls,
  ...accounts,
  ...statistics,
  ...admin,
  nodes,
  ...healthReports,
];
