import type { ServedOperation } from "../operation.ts";
import { sourceCalls } from "./calls.ts";
import { findSourceConditions } from "./conditions.ts";
import { keptCalls } from "./keptRoutes.ts";
import { KeptCallRemoval } from "./keptRemoval.ts";
import { sources as routes } from "./routes.ts";

declare module "../../api/route/route.ts" {
  interface RouteContext {
    /** Tells this node that a rejected call is kept. Default: nothing removes such calls. */
    wakeKeptCalls?(): void;
  }
}

const batchSize = 100;

/** Sources of webhooks: what their owner changes, and the calls of their senders. */
export const sources: ServedOperation = {
  routes: [...routes, ...keptCalls, ...sourceCalls],
  run: (parts) => {
    const removal = new KeptCallRemoval(parts);
    return { tasks: [removal.task], context: { wakeKeptCalls: () => removal.wake() } };
  },
  findConditions: findSourceConditions,
  clearAccount: async ({ read, execute }, account) => {
    const list = () => read.listResources("sources", { account, limit: batchSize, bodies: false });
    for (let rows = await list(); rows.length > 0; rows = await list())
      await Promise.all(rows.map(({ id }) => execute("deleteSource", { account, id })));
  },
};
