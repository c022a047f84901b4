import type { Route } from "../route.ts";
import { batch } from "./batch.ts";
import { dlq } from "./dlq.ts";
import { enqueue } from "./enqueue.ts";
import { flowControl } from "./flowControl.ts";
import { groups } from "./groups.ts";
import { healthReports } from "./health.ts";
import { intake } from "./intake.ts";
import { signingKeys } from "./keys.ts";
import { log } from "./log.ts";
import { messages } from "./messages.ts";
import { publish } from "./publish.ts";
import { queues } from "./queues.ts";
import { schedules } from "./schedules.ts";
import { sources } from "./sources.ts";

/** Everything that can be asked over HTTP. */
export const routes: readonly Route[] = [
  publish,
  enqueue,
  batch,
  ...groups,
  ...messages,
  ...dlq,
  ...log,
  ...schedules,
  ...queues,
  ...flowControl,
  ...signingKeys,
  ...sources,
  ...intake,
  ...healthReports,
];
