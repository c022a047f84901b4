import type { Socket } from "node:net";
import { connect, createServer } from "node:net";
import { listenAsProxy } from "./postgresProxy.ts";

/** How much lost time a link makes up for, in milliseconds: a busy machine forwards some bytes late. */
const madeUp = 250;

/** A link to a database that carries this many bytes a second in each direction. */
export async function slowLink(url: string, bytesPerSecond: number) {
  const { hostname, port } = new URL(url);
  const sockets = new Set<Socket>();
  let writers = 0;
  const server = createServer((client) => {
    // The first message of a connection names its use. Others look whether the database still answers.
    client.once("data", (data) => void (writers += data.includes("waypost writer") ? 1 : 0));
    const database = connect(Number(port), hostname);
    for (const [one, other] of [
      [client, database],
      [database, client],
    ] as const) {
      sockets.add(one);
      one.on("error", () => other.destroy());
      one.on("close", () => other.destroy());
      let freeAt = 0;
      one.on("data", (data) => {
        one.pause();
        const now = performance.now();
        freeAt = Math.max(freeAt, now - madeUp) + (data.length * 1_000) / bytesPerSecond;
        setTimeout(() => {
          other.write(data);
          one.resume();
        }, freeAt - now);
      });
    }
  });
  const through = await listenAsProxy(server, { url, sockets });
  return { url: through, countWriters: () => writers };
}
