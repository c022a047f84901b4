// @module-tag long
import { hash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { freshDatabase } from "../../postgres.ts";
import { developmentToken, startWaypost, temporaryFolder } from "../waypost.ts";

const most = 64 * 1024 * 1024;
const authorization = `Bearer ${developmentToken}`;
const waiting = { timeout: 120_000, interval: 50 };

const digest = async (incoming: IncomingMessage): Promise<string> =>
  hash("sha256", Buffer.concat(await incoming.toArray()), "hex");

/** Starts a destination that keeps its responses until they are released. */
async function startHolding() {
  const arrived: string[] = [];
  const held: ServerResponse[] = [];
  let inFlight = 0;
  let largest = 0;
  const server = createServer((incoming, outgoing) => {
    largest = Math.max(largest, ++inFlight);
    outgoing.once("close", () => inFlight--);
    digest(incoming).then(
      (sum) => {
        arrived.push(sum);
        held.push(outgoing);
      },
      () => undefined,
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void (server.closeAllConnections(), server.close()));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    arrived,
    /** Returns how many requests were in flight at once. */
    largest: () => largest,
    respond: (status: number) => {
      for (const outgoing of held.splice(0)) outgoing.writeHead(status).end();
    },
  };
}

const stores = {
  SQLite: async () => ["--data", temporaryFolder()],
  PostgreSQL: async () => ["--data", temporaryFolder(), "--database-url", await freshDatabase()],
};

describe.each(Object.entries(stores))("bodies of 64 MiB on %s", (_name, openStore) => {
  const start = (store: readonly string[], maxBody: number) =>
    startWaypost(["dev", "--port", "0", ...store, "--max-body", String(maxBody)]);

  /** Publishes a body. While the memory for bodies is used up, it tries again, as clients do. */
  async function publish(server: { url: string }, url: string, body: Buffer): Promise<number> {
    const options = { method: "POST", headers: { authorization, "svc-retry-delay": "1000" }, body };
    for (;;) {
      const { status } = await fetch(`${server.url}/v2/publish/${url}`, options);
      if (status !== 503) return status;
    }
  }

  test("arrive unchanged, a few at once, and also after the limit was lowered", async () => {
    const store = await openStore();
    const server = await start(store, most);
    const destination = await startHolding();
    const bodies = Array.from({ length: 6 }, () => randomBytes(most));
    const sums = bodies.map((body) => hash("sha256", body, "hex"));
    for (const body of bodies) expect(await publish(server, destination.url, body)).toBe(200);
    expect(await publish(server, destination.url, Buffer.alloc(most + 1))).toBe(413);
    await expect.poll(() => destination.arrived.length, waiting).toBeGreaterThan(0);
    server.kill("SIGTERM");
    destination.respond(500);
    await server.ended;
    const before = destination.arrived.length;

    const lower = await start(store, 1024 * 1024);
    expect(await publish(lower, destination.url, Buffer.alloc(1024 * 1024 + 1))).toBe(413);
    await expect
      .poll(() => {
        destination.respond(200);
        const arrived = new Set(destination.arrived.slice(before));
        return sums.filter((sum) => !arrived.has(sum));
      }, waiting)
      .toEqual([]);
    // The memory for bodies has 256 MiB.
    expect(destination.largest()).toBeLessThanOrEqual(4);
  });
});
