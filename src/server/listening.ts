import type { FastifyInstance } from "fastify";
import { systemClock } from "../engine/clock/clock.ts";
import type { Millis } from "../engine/core/values/basics.ts";
import type { HoldWatch } from "../engine/delivery/holdWatch.ts";
import type { ServerConfig } from "../settings/config.ts";
import type { Observation } from "../operations/monitoring/observe.ts";

/**
 * Opens all ports, and returns the address of the metrics. Reads the hold before, because the first response
 * must say whether deliveries are held. Closes the first port if another cannot be opened: a server with some
 * of its ports must not start.
 */
export async function listenAll(
  { port, accountPort, host }: ServerConfig,
  [api, accountApi]: readonly FastifyInstance[],
  { observation, holdWatch }: { observation: Observation; holdWatch: HoldWatch },
): Promise<string | null> {
  await holdWatch.start();
  try {
    await api?.listen({ port, host });
    await accountApi?.listen({ port: accountPort ?? 0, host });
    return await observation.start();
  } catch (error) {
    await Promise.all([holdWatch.stop(), api?.close(), accountApi?.close()]);
    throw error;
  }
}

/**
 * Closes an API and lets running requests finish, but only for `grace`: a request that never ends must not
 * keep the server from stopping.
 */
export async function closeWithin(api: FastifyInstance, grace: Millis): Promise<void> {
  const closed = new AbortController();
  const closing = api.close().finally(() => closed.abort());
  await systemClock.sleep(systemClock.now() + grace, closed.signal);
  api.server.closeAllConnections();
  await closing;
}
