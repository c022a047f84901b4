import type { Route } from "../route.ts";
import { batch } from "./batch.ts";
import { dlq } from "./dlq.ts";
import { healthReports } from "./health.ts";
import { signingKeys } from "./keys.ts";
import { log } from "./log.ts";
import { messages } from "./messages.ts";
import { publish } from "./publish.ts";

/** Everything that can be asked over HTTP. */
export const routes: readonly Route[] = [publish, batch, ...messages, ...dlq, ...log, ...signingKeys, ...healthReports];
