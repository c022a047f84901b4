import type { Route } from "../route.ts";
import { accounts } from "./accounts.ts";
import { admin } from "./admin.ts";
import { audit } from "./audit.ts";
import { batch } from "./batch.ts";
import { dlq } from "./dlq.ts";
import { enqueue } from "./enqueue.ts";
import { flowControl } from "./flowControl.ts";
import { groups } from "./groups.ts";
import { healthReports } from "./health.ts";
import { hooks } from "./hooks.ts";
import { intake } from "./intake.ts";
import { signingKeys } from "./keys.ts";
import { log } from "./log.ts";
import { messages } from "./messages.ts";
import { publish } from "./publish.ts";
import { queues } from "./queues.ts";
import { runLogs } from "./runLogs.ts";
import { runs } from "./runs.ts";
import { runStatus } from "./runStatus.ts";
import { schedules } from "./schedules.ts";
import { sources } from "./sources.ts";
import { statistics } from "./statistics.ts";
import { tokens } from "./tokens.ts";
import { trigger } from "./trigger.ts";
import { waits } from "./waits.ts";
import { workflowDlq } from "./workflowDlq.ts";

/** Everything that can be asked over HTTP. */
export const routes: readonly Route[] = [
  publish,
  enqueue,
  batch,
  ...groups,
  ...messages,
  ...dlq,
  ...log,
  audit,
  ...schedules,
  ...queues,
  ...flowControl,
  ...signingKeys,
  ...tokens,
  ...trigger,
  ...runs,
  ...runLogs,
  runStatus,
  ...waits,
  ...workflowDlq,
  ...hooks,
  ...sources,
  ...intake,
  ...accounts,
  ...statistics,
  ...admin,
  ...healthReports,
];
