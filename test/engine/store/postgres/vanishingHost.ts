import type { Socket } from "node:net";
import { connect as connectTo, createServer } from "node:net";
import { listenAsProxy } from "./postgresProxy.ts";

/**
 * A host that can vanish silently. From then on it accepts connections, but forwards nothing in either
 * direction.
 */
export async function vanishingHost(url: string) {
  const { hostname, port } = new URL(url);
  const sockets = new Set<Socket>();
  let swallows: ((data: Buffer) => boolean) | null = null;
  let accepted = 0;
  const server = createServer((client) => {
    accepted++;
    const database = connectTo(Number(port), hostname);
    for (const [one, other] of [
      [client, database],
      [database, client],
    ] as const) {
      sockets.add(one);
      one.on("error", () => other.destroy());
      one.on("close", () => other.destroy());
      one.on("data", (data) => void (swallows?.(data) || other.write(data)));
    }
  });
  const through = await listenAsProxy(server, { url, sockets });
  return {
    url: through,
    /** Drops the data for which `what` returns true; by default, all of it. */
    vanish: (what: (data: Buffer) => boolean = () => true) => void (swallows = what),
    comeBack: () => void (swallows = null),
    isGone: () => swallows !== null,
    accepted: () => accepted,
  };
}
