import type { ServedOperation } from "../operation.ts";
import { routes } from "./routes.ts";
import { JobRunner } from "./runner.ts";

declare module "../../api/route/route.ts" {
  interface RouteContext {
    /** Tells this node that a job was created. Default: jobs begin when a node looks for them. */
    wakeJobs?(): void;
  }
}

const batchSize = 100;

/** Bulk actions that run in the background. */
export const jobs: ServedOperation = {
  routes,
  run: ({ isShared, ...parts }) => {
    const worker = new JobRunner({ ...parts, hasOtherNodes: isShared });
    return { worker, context: { wakeJobs: () => worker.wake() } };
  },
  clearAccount: async ({ read, execute }, account) => {
    const list = () => read.jobs({ account, limit: batchSize });
    for (let rows = await list(); rows.length > 0; rows = await list())
      await execute("removeJobs", { account, ids: rows.map(({ id }) => id) });
  },
};
