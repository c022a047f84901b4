import type { ServedOperation } from "../operation.ts";
import { routes } from "./routes.ts";
import { serverRoutes } from "./serverRoutes.ts";
import { createAlertTask } from "./task.ts";

const batchSize = 100;

/** Alerts to accounts and to the operator. */
export const alerts: ServedOperation = {
  routes: [...routes, ...serverRoutes],
  run: (parts) => ({ tasks: [createAlertTask(parts)] }),
  clearAccount: async ({ read, execute }, account) => {
    const list = () => read.alerts({ account, limit: batchSize });
    for (let rows = await list(); rows.length > 0; rows = await list())
      await execute("removeAlerts", { account, ids: rows.map(({ id }) => id), reason: "request" });
  },
};
