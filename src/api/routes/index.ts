import type { Route } from "../route/route.ts";
import { accounts } from "./accounts/accounts.ts";
import { admin } from "./accounts/admin.ts";
import { attempts } from "./messages/attempts.ts";
import { batch } from "./messages/batch.ts";
import { dlq } from "./deadLetters/dlq.ts";
import { egress } from "./server/egress.ts";
import { enqueue } from "./messages/enqueue.ts";
import { flowControl } from "./queues/flowControl.ts";
import { groups } from "./groups/groups.ts";
import { healthReports } from "./server/health.ts";
import { holders } from "./queues/holders.ts";
import { hooks } from "./workflows/hooks.ts";
import { signingKeys } from "./accounts/signingKeys.ts";
import { log } from "./logs/log.ts";
import { messages } from "./messages/messages.ts";
import { publish } from "./messages/publish.ts";
import { queues } from "./queues/queues.ts";
import { pulls } from "./messages/pull.ts";
import { runList } from "./workflows/runList.ts";
import { runLogs } from "./workflows/runLogs.ts";
import { runOnInCall } from "./workflows/runOn.ts";
import { runs } from "./workflows/runs.ts";
import { runStatus } from "./workflows/runStatus.ts";
import { schedules } from "./schedules/schedules.ts";
import { tokens } from "./accounts/tokens.ts";
import { me } from "./accounts/me.ts";
import { nodes } from "./server/nodes.ts";
import { unfinishedMessages } from "./messages/unfinished.ts";
import { trigger } from "./workflows/trigger.ts";
import { waitedEvents } from "./workflows/waitedEvents.ts";
import { waits } from "./workflows/waits.ts";
import { workflowDlq } from "./workflows/workflowDlq.ts";

/** The routes of messages, runs and accounts. */
export const engineRoutes: readonly Route[] = [
  publish,
  enqueue,
  batch,
  ...groups,
  ...messages,
  ...attempts,
  ...pulls,
  ...unfinishedMessages,
  me,
  ...dlq,
  ...log,
  ...schedules,
  ...queues,
  ...flowControl,
  ...holders,
  ...signingKeys,
  ...tokens,
  ...trigger,
  ...runs,
  runOnInCall,
  runList,
  ...runLogs,
  runStatus,
  waitedEvents,
  ...waits,
  ...workflowDlq,
  ...hooks,
  ...accounts,
  ...admin,
  nodes,
  egress,
  ...healthReports,
];
