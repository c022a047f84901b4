import { errors, Pool } from "undici";

/** The connections of this node, a pool for each origin (`https://shop.example:8443`). */
export type Connections = {
  /** Throws once they are closed. */
  to(origin: string): Pool;
  /** Cuts all of them; what runs on them ends with an error. */
  close(): Promise<void>;
  /** How many origins are remembered. */
  count(): number;
};

/**
 * Pools are made when they are needed and forgotten when they are empty, however many origins there are in a lifetime.
 * undici's own `Agent` does not: it keeps a pool for ever if the last connection breaks off while a request runs (8.12).
 */
export function createConnections(options: Pool.Options): Connections {
  const pools = new Map<string, Pool>();
  let closed = false;
  const make = (origin: string): Pool => {
    if (closed) throw new errors.ClientClosedError();
    forgetEmpty(pools);
    const pool = new Pool(origin, options);
    pools.set(origin, pool);
    return pool;
  };
  return {
    to: (origin) => pools.get(origin) ?? make(origin),
    close: async () => {
      closed = true;
      await Promise.all([...pools.values()].map((pool) => pool.destroy()));
      pools.clear();
    },
    count: () => pools.size,
  };
}

/** For each new pool this looks at the few that were not looked at for longest, so pools go faster than they come. */
function forgetEmpty(pools: Map<string, Pool>): void {
  for (let look = Math.min(4, pools.size); look > 0; look--) {
    const [oldest] = pools;
    if (oldest === undefined) return;
    const [origin, pool] = oldest;
    pools.delete(origin);
    const { connected, size } = pool.stats;
    if (connected > 0 || size > 0) pools.set(origin, pool);
    else void pool.destroy();
  }
}
