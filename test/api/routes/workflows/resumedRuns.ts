import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import type { TestServer, Reply } from "../../testServer.ts";

/** Resumes failed runs. `path` is the id of one failed run after a slash, or a query, or empty. */
export const resume = (
  server: TestServer,
  path: string,
  more: Parameters<TestServer["ask"]>[2] = {},
): Promise<Reply> => server.ask("POST", `/v2/workflows/dlq/resume${path}`, more);

/** Restarts failed runs. `path` is as for `resume`. */
export const restart = (server: TestServer, path: string): Promise<Reply> =>
  server.ask("POST", `/v2/workflows/dlq/restart${path}`);

/** Returns the number of failed runs in the dead letter queue. */
export const countFailedRuns = async ({ ask }: TestServer): Promise<number> =>
  (await ask("GET", "/v2/workflows/dlq")).body.messages.length;

/** Returns the deliveries since the last call, and forgets them. */
export const takeDeliveries = ({ deliveries }: TestServer): Delivery[] => deliveries.splice(0);
