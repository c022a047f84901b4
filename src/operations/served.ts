import { alerts } from "./alerts/served.ts";
import { audit } from "./auditLog/routes.ts";
import { earlyRemoval } from "./earlyRemoval/served.ts";
import { jobs } from "./jobs/served.ts";
import { metrics } from "./monitoring/routes.ts";
import { outbox } from "./outbox/served.ts";
import { overviews } from "./overview/routes.ts";
import { searches } from "./search/routes.ts";
import { selfCheck } from "./selfCheck/served.ts";
import { sources } from "./sources/served.ts";
import { statistics } from "./statistics/routes.ts";
import { unpublished } from "./unpublished/served.ts";
import type { ServedOperation } from "./operation.ts";

// The routes and the work of the server besides messages and runs.

/** One line for each operation that has routes, or works in the background. */
export const served: readonly ServedOperation[] = [
  jobs,
  alerts,
  { routes: audit },
  { routes: overviews },
  { routes: statistics },
  { routes: searches },
  { routes: [metrics] },
  sources,
  outbox,
  unpublished,
  selfCheck,
  earlyRemoval,
];
