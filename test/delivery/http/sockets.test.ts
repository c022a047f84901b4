import { createServer } from "node:net";
import type { AddressInfo, Socket } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { limitToDescriptors } from "../../../src/core/fairness/descriptors.ts";
import { noBytes } from "../../../src/core/model/message.ts";
import type { ConnectionPool } from "../../../src/delivery/http/pool.ts";
import { descriptorLimit } from "../../../src/delivery/http/descriptors.ts";
import { createEgress } from "../../../src/delivery/http/egress.ts";
import { ask, createConnections, rawDestination } from "./destination.ts";

const empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

function start(maxSockets: number, perOrigin = 10): ConnectionPool {
  const egress = createEgress({ allow: ["127.0.0.1"], resolve: async () => ["127.0.0.1"] });
  return createConnections({ connector: egress.connector(10_000), perOrigin, maxSockets });
}

/** A destination that answers at once, and says how many connections to it are open. */
async function answering(): Promise<{ port: number; open: Set<Socket> }> {
  const open = new Set<Socket>();
  const port = await rawDestination((socket) => {
    open.add(socket.on("close", () => open.delete(socket)));
    socket.on("data", () => socket.write(empty));
  });
  return { port, open };
}

/** Sends a request and ignores the response. Returns how to take the request back. */
const sendTo = (connections: ConnectionPool, url: string): (() => void) =>
  connections.send(new URL(url), {
    request: { method: "POST", path: "/", headers: [], body: noBytes },
    onSent: () => undefined,
    onResponse: () => undefined,
    onBody: () => undefined,
    onEnd: () => undefined,
    onFailure: () => undefined,
  });

describe("sockets to all destinations together", () => {
  test("are bounded however many origins there are: the one that has been idle for longest makes room", async () => {
    const { port, open } = await answering();
    const connections = start(3);
    for (let n = 0; n < 12; n++) {
      expect((await ask(connections, `http://h${n}.test:${port}/`)).status).toBe(200);
      // So that it is idle.
      await new Promise((resolve) => setTimeout(resolve, 5));
      expect(connections.sockets).toBeLessThanOrEqual(3);
    }
    await expect.poll(() => open.size).toBe(3);
    expect(connections.count).toBe(3);
  });

  test("are waited for while all are in use, which costs no request its attempt", async () => {
    const held: Socket[] = [];
    const slow = await rawDestination((socket) => socket.on("data", () => held.push(socket)));
    const { port } = await answering();
    const connections = start(2);
    const answers = [ask(connections, `http://a.test:${slow}/`), ask(connections, `http://b.test:${slow}/`)];
    await expect.poll(() => held.length).toBe(2);
    const late = ask(connections, `http://c.test:${port}/`);
    expect(connections.sockets).toBe(2);
    held.forEach((socket) => socket.write(empty));
    expect((await Promise.all([...answers, late])).map(({ status }) => status)).toEqual([200, 200, 200]);
    connections.close();
    expect(connections.sockets).toBe(0);
  });

  test("are given back at once by requests that are taken back while they connect", async () => {
    // Its queue is full, so the handshake of TCP does not end.
    const full = createServer();
    await new Promise<void>((resolve) => full.listen({ port: 0, host: "127.0.0.1", backlog: 1 }, resolve));
    onTestFinished(() => void full.close());
    const { port } = full.address() as AddressInfo;
    const connections = start(100, 100);
    const takeBack = Array.from({ length: 50 }, () => sendTo(connections, `http://hangs.test:${port}/`));
    expect(connections.sockets).toBe(50);
    // In the same turn: nothing has connected yet.
    takeBack.forEach((one) => one());
    expect([connections.sockets, connections.count]).toEqual([0, 0]);
    const other = await answering();
    expect((await ask(connections, `http://shop.test:${other.port}/`)).status).toBe(200);
  });

  test("that wait for their turn are not opened if the request is taken back", async () => {
    const held: Socket[] = [];
    const slow = await rawDestination((socket) => socket.on("data", () => held.push(socket)));
    const { port, open } = await answering();
    const connections = start(1);
    const answer = ask(connections, `http://a.test:${slow}/`);
    await expect.poll(() => held.length).toBe(1);
    sendTo(connections, `http://b.test:${port}/`)();
    expect(connections.count).toBe(1);
    held[0]?.write(empty);
    await answer;
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect(open.size).toBe(0);
  });
});

describe("file descriptors", () => {
  test.each([
    ["there are plenty", 1_000_000, 1_024, { capacity: 1_024, sockets: 2_048 }],
    ["there are few", 1_024, 1_024, { capacity: 512, sockets: 512 }],
    ["there are as many as deliveries need, and fewer than idle connections could", 3_000, 1_024, { capacity: 1_024, sockets: 1_500 }],
    ["nobody knows", null, 1_024, { capacity: 1_024, sockets: 2_048 }],
    ["there are hardly any", 1, 1_024, { capacity: 1, sockets: 1 }],
  ])("leave half to senders and files if %s", (_, descriptors, capacity, bounds) => {
    expect(limitToDescriptors(descriptors, capacity)).toEqual(bounds);
  });

  test("of this process are known", () => {
    const limit = descriptorLimit();
    expect(limit === null || limit >= 64).toBe(true);
  });
});
