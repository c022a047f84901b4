import type { Socket } from "node:net";
import { connect, createServer } from "node:net";
import { listenAsProxy } from "./postgresProxy.ts";

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
      one.on("data", (data) => {
        one.pause();
        setTimeout(
          () => {
            other.write(data);
            one.resume();
          },
          (data.length * 1_000) / bytesPerSecond,
        );
      });
    }
  });
  const through = await listenAsProxy(server, { url, sockets });
  return { url: through, countWriters: () => writers };
}
