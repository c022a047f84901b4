import type { ServedOperation } from "../operation.ts";
import { findUnpublishedConditions } from "./conditions.ts";
import { SeriesCounter } from "./counter.ts";
import { routes } from "./routes.ts";

declare module "../../api/route/route.ts" {
  interface RouteContext {
    /** Stores the counts of requests that never became a message. Default: nothing is counted. */
    storeUnpublished?(): Promise<void>;
  }
}

/** Requests that never became a message: refused, repeated and rejected ones. */
export const unpublished: ServedOperation = {
  routes,
  run: ({ store, clock }) => {
    const counter = new SeriesCounter({ store, now: () => clock.now() });
    return {
      tasks: [counter.createTask()],
      worker: { start: () => undefined, stop: () => counter.store().catch(() => undefined) },
      context: {
        noteUnpublished: (one) => counter.note(one),
        storeUnpublished: () => counter.store(),
      },
    };
  },
  findConditions: findUnpublishedConditions,
  clearAccount: async ({ read, execute }, account) => {
    const rows = await read.series(account);
    const ids = rows.map(({ id }) => id);
    if (ids.length > 0) await execute("removeSeries", { account, ids, reason: "request" });
  },
};
