import type { Route } from "../api/route/route.ts";
import { engineRoutes } from "../api/routes/index.ts";
import { served } from "./served.ts";

/** All routes of the HTTP API. */
export const routes: readonly Route[] = [...engineRoutes, ...served.flatMap((one) => one.routes)];
