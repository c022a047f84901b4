import { once } from "node:events";
import { createServer } from "node:http";
import { connect, type AddressInfo, type Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { PoolClosed, type ConnectionPool } from "../../../../src/engine/delivery/http/pool.ts";
import {
  type RequestCaller,
  ConnectionLost,
  socketReadOptions,
} from "../../../../src/engine/delivery/http/connection.ts";
import { createEgress } from "../../../../src/engine/delivery/http/egress.ts";
import {
  ask,
  createConnections,
  makeDelivery,
  createTestDeliver as openedDeliver,
  rawDestination,
} from "./destination.ts";

function start(perOrigin = 2): ConnectionPool {
  const egress = createEgress({ allow: ["127.0.0.1"], resolve: async () => ["127.0.0.1"] });
  return createConnections({ connector: egress.connector(1_000), perOrigin });
}

const empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/**
 * Starts a destination that answers the first request of each connection and treats the next one as the test
 * says. It lists the requests.
 */
async function startUnreliable(
  next: (socket: Socket, opened: number) => unknown,
): Promise<{ port: number; requests: string[] }> {
  const requests: string[] = [];
  let opened = 0;
  const port = await rawDestination((socket) => {
    const number = ++opened;
    let asked = 0;
    socket.on("data", (bytes) => {
      if (asked > 1) return;
      requests.push(`${number}: ${bytes.toString("latin1").slice(-5)}`);
      return asked++ === 0 ? socket.write(empty) : next(socket, number);
    });
  });
  return { port, requests };
}

const post = { method: "POST", body: [new TextEncoder().encode("hello")] };

/** Waits until a connection whose response has just ended may be reused. */
async function untilIdle(): Promise<void> {
  for (let look = 0; look < 3; look++) await new Promise(setImmediate);
}

const endings = [
  ["ends", (socket: Socket) => socket.end(), ConnectionLost],
  ["resets", (socket: Socket) => socket.resetAndDestroy(), "ECONNRESET"],
] as const;

test.each(endings)(
  "a request on a reused connection that the destination %s after reading it is resent over a new one",
  async (_case, cut) => {
    const { port, requests } = await startUnreliable(cut);
    const connections = start(3);
    const url = `http://a.test:${port}/`;
    await Promise.all([ask(connections, url, post), ask(connections, url, post)]);
    await untilIdle();
    expect((await ask(connections, url, post)).status).toBe(200);
    // Not over the other connection, which has been idle for longer.
    expect(requests).toEqual(["1: hello", "2: hello", expect.stringMatching(/^[12]: hello$/), "3: hello"]);
    expect(connections.count).toBe(1);
  },
);

/** Starts a destination that answers one request on each connection, then passes the socket to the test. */
async function startOneRequestServer(): Promise<{ port: number; sockets: Socket[] }> {
  const sockets: Socket[] = [];
  const port = await rawDestination((socket) => {
    sockets.push(socket);
    socket.once("data", () => {
      socket.pause();
      socket.write(empty);
    });
  });
  return { port, sockets };
}

test.each([
  ["that the destination resets before the request is sent", 5, 0],
  ["that it resets before it reads anything", 5, 30],
  ["that it resets within the body", 20_000_000, 30],
])("a request on a reused connection %s is resent over a new one", async (_case, size, after) => {
  const { port, sockets } = await startOneRequestServer();
  const connections = start();
  await ask(connections, `http://a.test:${port}/`);
  await untilIdle();
  const reset = (): unknown => sockets[0]?.resetAndDestroy();
  if (after === 0) reset();
  else setTimeout(reset, after);
  expect((await ask(connections, `http://a.test:${port}/`, { body: [Buffer.alloc(size)] })).status).toBe(200);
  expect(sockets.length).toBe(2);
});

test.each(endings)(
  "a request on a reused connection that the destination %s within the response has failed",
  async (_case, cut, why) => {
    const { port, requests } = await startUnreliable((socket) => socket.write("H", () => cut(socket)));
    const connections = start();
    await ask(connections, `http://a.test:${port}/`);
    await untilIdle();
    await expect(ask(connections, `http://a.test:${port}/`)).rejects.toThrow(why);
    expect(requests.length).toBe(2);
  },
);

test.each(endings)(
  "a request on a new connection that the destination %s has failed",
  async (_case, cut, why) => {
    let opened = 0;
    const port = await rawDestination((socket) => {
      opened++;
      socket.on("data", () => cut(socket));
    });
    await expect(ask(start(), `http://a.test:${port}/`)).rejects.toThrow(why);
    expect(opened).toBe(1);
  },
);

test.each(endings)(
  "a request is resent once: it has failed if the destination %s the new connection, too",
  async (_case, cut, why) => {
    let opened = 0;
    const port = await rawDestination((socket) => {
      const answers = ++opened === 1;
      let asked = 0;
      socket.on("data", () => (answers && asked++ === 0 ? socket.write(empty) : cut(socket)));
    });
    const connections = start();
    await ask(connections, `http://a.test:${port}/`);
    await untilIdle();
    await expect(ask(connections, `http://a.test:${port}/`)).rejects.toThrow(why);
    expect([opened, connections.count]).toEqual([2, 0]);
  },
);

test("a request is resent over a new connection, even if a used connection becomes free first", async () => {
  const requests: string[] = [];
  let opened = 0;
  const port = await rawDestination((socket) => {
    const number = ++opened;
    let asked = 0;
    socket.on("data", (bytes) => {
      const [, path = ""] = /^POST (\S+)/.exec(bytes.toString("latin1")) ?? [];
      requests.push(`${number}: ${path}`);
      if (path === "/bad" && asked > 0) socket.resetAndDestroy();
      else socket.write(empty);
      asked++;
    });
  });
  const connections = start(2);
  const url = `http://a.test:${port}/`;
  await Promise.all([ask(connections, url), ask(connections, url)]);
  await untilIdle();
  const all = ["/bad", ...Array.from({ length: 10 }, (_none, at) => `/${at}`)].map((path) =>
    ask(connections, url, { path }),
  );
  expect((await Promise.all(all)).map(({ status }) => status)).toEqual(all.map(() => 200));
  const bad = requests.filter((text) => text.endsWith("/bad"));
  expect(bad).toEqual([expect.stringMatching(/^[12]:/), "3: /bad"]);
});

test("each message to a Node server that closes idle connections needs one attempt", async () => {
  let served = 0;
  const server = createServer((incoming, response) => {
    incoming.resume();
    served++;
    response.end();
  });
  server.keepAliveTimeout = 5_000;
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const deliver = openedDeliver();
  const statuses: unknown[] = [];
  for (let round = 0; round < 12; round++) {
    const { outcome } = deliver(makeDelivery(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`));
    // As the server's own timer does: the FIN is in transit when the request is sent.
    server.closeIdleConnections();
    const { status, error } = await outcome;
    statuses.push(status ?? error);
    await untilIdle();
  }
  expect([statuses, served]).toEqual([Array(12).fill(200), 12]);
});

test("an attempt began when its request was first sent, even if it was resent", async () => {
  const late = 150;
  const { port, requests } = await startUnreliable((socket) => setTimeout(() => socket.destroy(), late));
  const deliver = openedDeliver();
  await deliver(makeDelivery(`http://127.0.0.1:${port}/`)).outcome;
  await untilIdle();
  const { status, took } = await deliver(makeDelivery(`http://127.0.0.1:${port}/`)).outcome;
  expect([status, requests.length]).toEqual([200, 3]);
  // A timer may fire a few milliseconds early.
  expect(took).toBeGreaterThan(late - 10);
});

test("a resent request can be taken back while it waits, and fails when the pool closes", async () => {
  let refuses = false;
  let asked = 0;
  const { port } = await startUnreliable((socket) => socket.resetAndDestroy());
  const held: (() => void)[] = [];
  const connections = createConnections({
    perOrigin: 1,
    connector: (_to, answer) => {
      const open = (): void => {
        const socket = connect({ port, host: "127.0.0.1", ...socketReadOptions }, () => answer(null, socket));
      };
      if (refuses) held.push(open);
      else open();
    },
  });
  await ask(connections, `http://a.test:${port}/`);
  refuses = true;
  await untilIdle();
  const heard: string[] = [];
  const caller = (name: string): RequestCaller => ({
    request: { method: "GET", path: "/", headers: [], body: [] },
    onSent: () => void asked++,
    onResponse: () => heard.push(`${name} begins`),
    onBody: () => undefined,
    onEnd: () => heard.push(`${name} ends`),
    onFailure: (error) => heard.push(`${name} fails: ${error instanceof PoolClosed}`),
  });
  const takeBack = connections.send(new URL(`http://a.test:${port}/`), caller("a"));
  await expect.poll(() => held.length).toBe(1);
  takeBack();
  connections.send(new URL(`http://a.test:${port}/`), caller("b"));
  connections.close();
  expect([asked, heard, connections.count]).toEqual([1, ["b fails: true"], 0]);
});
