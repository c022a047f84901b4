import { createServer } from "node:net";
import type { AddressInfo, Socket } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { limitToDescriptors } from "../../../../src/engine/core/node/descriptors.ts";
import type { ConnectionPool } from "../../../../src/engine/delivery/http/pool.ts";
import { descriptorLimit } from "../../../../src/engine/delivery/http/descriptors.ts";
import { createEgress } from "../../../../src/engine/delivery/http/egress.ts";
import { ask, createConnections, rawDestination } from "./destination.ts";

const empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

function start(maxSockets: number, perOrigin = 10): ConnectionPool {
  const egress = createEgress({ allow: ["127.0.0.1"], resolve: async () => ["127.0.0.1"] });
  return createConnections({ connector: egress.connector(10_000), perOrigin, maxSockets });
}

/** Starts a destination that responds at once, and counts its open connections. */
async function answering(): Promise<{ port: number; open: Set<Socket> }> {
  const open = new Set<Socket>();
  const port = await rawDestination((socket) => {
    open.add(socket.on("close", () => open.delete(socket)));
    socket.on("data", () => socket.write(empty));
  });
  return { port, open };
}

/** Sends a request and ignores the response. Returns a function that takes the request back. */
const sendTo = (connections: ConnectionPool, url: string): (() => void) =>
  connections.send(new URL(url), {
    request: { method: "POST", path: "/", headers: [], body: [] },
    onSent: () => undefined,
    onResponse: () => undefined,
    onBody: () => undefined,
    onEnd: () => undefined,
    onFailure: () => undefined,
  });

describe("sockets to all destinations together", () => {
  test("are limited for any number of origins: the longest idle connection is closed", async () => {
    const { port, open } = await answering();
    const connections = start(3);
    for (let n = 0; n < 12; n++) {
      expect((await ask(connections, `http://h${n}.test:${port}/`)).status).toBe(200);
      // Waits until the connection is idle.
      await new Promise((resolve) => setTimeout(resolve, 5));
      expect(connections.sockets).toBeLessThanOrEqual(3);
    }
    await expect.poll(() => open.size).toBe(3);
    expect(connections.count).toBe(3);
  });

  test("are waited for while all are in use, and no attempt fails", async () => {
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

  test("are released at once by requests that are taken back while they connect", async () => {
    // Its backlog is full, so the TCP handshake does not complete.
    const full = createServer();
    await new Promise<void>((resolve) => full.listen({ port: 0, host: "127.0.0.1", backlog: 1 }, resolve));
    onTestFinished(() => void full.close());
    const { port } = full.address() as AddressInfo;
    const connections = start(100, 100);
    const takeBack = Array.from({ length: 50 }, () => sendTo(connections, `http://hangs.test:${port}/`));
    expect(connections.sockets).toBe(50);
    // In the same turn, so that nothing has connected yet.
    takeBack.forEach((one) => one());
    expect([connections.sockets, connections.count]).toEqual([0, 0]);
    const other = await answering();
    expect((await ask(connections, `http://shop.test:${other.port}/`)).status).toBe(200);
  });

  test("are not opened for requests that are taken back while they wait", async () => {
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
    ["there are plenty", 1_000_000, { capacity: 1_024, sockets: 2_048 }],
    ["there are few", 1_024, { capacity: 512, sockets: 512 }],
    [
      "there are enough for deliveries, but not for as many idle connections",
      3_000,
      { capacity: 1_024, sockets: 1_500 },
    ],
    ["the number is unknown", null, { capacity: 1_024, sockets: 2_048 }],
  ])("leave half to senders and files if %s", (_, descriptors, bounds) => {
    expect(limitToDescriptors(descriptors, 1_024)).toEqual(bounds);
  });

  test("allow one delivery if there is only one", () => {
    expect(limitToDescriptors(1, 1_024)).toEqual({ capacity: 1, sockets: 1 });
  });

  test("have a known limit in this process", () => {
    const limit = descriptorLimit();
    expect(limit === null || limit >= 64).toBe(true);
  });
});
