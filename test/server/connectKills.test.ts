// @module-tag long
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { commandsFor, startCommand } from "../client/startCommand.ts";
import { developmentToken, startWaypost } from "./waypost.ts";

// Connectors that are killed (SIGKILL) at several points: each message is delivered, and none is lost.

/** When a connector is killed. */
type Point = "before the call" | "in the call" | "after the call";

const messages = 4;

/** Starts a receiver that calls `kill` at a point, and counts its answers by message. */
async function startReceiver(point: Point) {
  const answered = new Map<string, number>();
  let kill: (() => void) | null = null;
  const atPoint = (now: Point): boolean => {
    if (now !== point || !kill) return false;
    kill();
    kill = null;
    return true;
  };
  const server = createServer((incoming, outgoing) => {
    const id = String(incoming.headers["svc-message-id"]);
    incoming.resume().once("end", () => {
      if (atPoint("in the call")) return void outgoing.destroy();
      answered.set(id, (answered.get(id) ?? 0) + 1);
      outgoing.end("done", () => atPoint("after the call"));
    });
  });
  server.on("connection", (socket) => {
    if (atPoint("before the call")) socket.destroy();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void (server.closeAllConnections(), server.close()));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    answered,
    killAt: (act: () => void) => (kill = act),
  };
}

/** Kills a connector at a point, starts another one, and waits until all messages are delivered. */
async function runKill(point: Point): Promise<void> {
  const server = await startWaypost(["dev", "--port", "0"]);
  const origin = "https://app.internal";
  expect((await commandsFor(server.url)("pulled", "set", origin)).code).toBe(0);
  const receiver = await startReceiver(point);
  const connect = async () => {
    const args = ["connect", origin, "--to", receiver.url, "--concurrency", "2"];
    const connector = startCommand(args, { WAYPOST_URL: server.url, WAYPOST_TOKEN: developmentToken });
    await expect.poll(() => connector.out()).toContain("connected");
    return connector;
  };
  const ask = async (path: string, method = "GET") => {
    const headers = { authorization: `Bearer ${developmentToken}`, "svc-retry-delay": "500" };
    return (await (await fetch(`${server.url}${path}`, { method, headers })).json()) as Record<
      string,
      unknown
    >;
  };
  const killed = await connect();
  receiver.killAt(() => killed.kill("SIGKILL"));
  const ids = await Promise.all(
    Array.from({ length: messages }, async (_, at) =>
      String((await ask(`/v2/publish/${origin}/${at}`, "POST"))["messageId"]),
    ),
  );
  expect((await killed.ended).signal).toBe("SIGKILL");
  await connect();
  for (const id of ids) {
    const state = async () => (await ask(`/v2/messages/${id}`))["state"];
    await expect.poll(state, { timeout: 90_000, interval: 500 }).toBe("delivered");
    const { events } = await ask(`/v2/events?messageId=${id}&state=DELIVERED`);
    expect(events).toHaveLength(1);
    // A second call is possible: the connector died before it reported.
    expect(receiver.answered.get(id)).toBeGreaterThanOrEqual(1);
    expect(receiver.answered.get(id)).toBeLessThanOrEqual(2);
  }
}

test("no message is lost if a connector is killed at any point", async () => {
  const points: readonly Point[] = ["before the call", "in the call", "after the call"];
  await Promise.all(points.map(runKill));
});
