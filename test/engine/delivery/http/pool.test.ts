import { connect } from "node:net";
import { expect, test } from "vitest";
import { PoolClosed, type ConnectionPool } from "../../../../src/engine/delivery/http/pool.ts";
import { ConnectionLost, socketReadOptions } from "../../../../src/engine/delivery/http/connection.ts";
import { createEgress } from "../../../../src/engine/delivery/http/egress.ts";
import { ask, readBody, createConnections, httpDestination, rawDestination } from "./destination.ts";

function start(perOrigin = 2): ConnectionPool {
  const egress = createEgress({ allow: ["127.0.0.1"], resolve: async () => ["127.0.0.1"] });
  return createConnections({ connector: egress.connector(1_000), perOrigin });
}

const empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/** Waits a moment, and until what has arrived by then was read. In a late process, timers fire before. */
async function pauseAndRead(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 20));
  await new Promise(setImmediate);
}

test("a connection is reused for the same origin", async () => {
  let opened = 0;
  const port = await rawDestination((socket) => {
    opened++;
    socket.on("data", () => socket.write(empty));
  });
  const connections = start();
  for (let round = 0; round < 3; round++) await ask(connections, `http://a.test:${port}/`);
  expect(opened).toBe(1);
  await ask(connections, `http://b.test:${port}/`);
  expect(opened).toBe(2);
  expect(connections.count).toBe(2);
});

test.each([
  ["that sends Connection: close", `HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`],
  ["that sends more than its response", `${empty}HTTP/1.1 200 OK\r\n`],
])(
  "a destination %s gets a new connection for each request, and its origin is removed",
  async (_case, said) => {
    let opened = 0;
    const port = await rawDestination((socket) => {
      opened++;
      socket.on("data", () => socket.write(said));
    });
    const connections = start();
    for (let round = 0; round < 3; round++)
      expect((await ask(connections, `http://a.test:${port}/`)).status).toBe(200);
    expect(opened).toBe(3);
    expect(connections.count).toBe(0);
  },
);

test("a shortage of sockets fails no attempt", async () => {
  const port = await rawDestination((socket) => socket.on("data", () => socket.write(empty)));
  const egress = createEgress({ allow: ["127.0.0.1"], resolve: async () => ["127.0.0.1"] }).connector(1_000);
  let short = 3;
  const connections = createConnections({
    connector: (options, callback) => {
      // As undici reports it: without the socket.
      const failed: (error: Error) => void = callback as never;
      if (short-- > 0) failed(Object.assign(new Error("connect EMFILE"), { code: "EMFILE" }));
      else egress(options, callback);
    },
    perOrigin: 1,
  });
  expect((await ask(connections, `http://127.0.0.1:${port}/`)).status).toBe(200);
  expect(short).toBe(-1);
});

test("an unrequested response closes an idle connection, and answers no request", async () => {
  let speak = (): void => undefined;
  const port = await rawDestination((socket) => {
    speak = () => void socket.write("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
    socket.on("data", () => socket.write(empty));
  });
  const connections = start(1);
  await ask(connections, `http://a.test:${port}/`);
  speak();
  await expect.poll(() => connections.count).toBe(0);
  expect((await ask(connections, `http://a.test:${port}/`)).status).toBe(200);
});

test("a destination that closes silently after each response fails no attempt", async () => {
  const port = await rawDestination((socket) => socket.once("data", () => socket.end(empty)));
  const connections = start();
  for (let round = 0; round < 6; round++)
    expect((await ask(connections, `http://a.test:${port}/`)).status).toBe(200);
  const waiting = Array.from({ length: 20 }, () => ask(connections, `http://a.test:${port}/`));
  expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual(waiting.map(() => 200));
});

test("bytes that arrived before a request was sent are not its response", async () => {
  let speak = (): void => undefined;
  const port = await rawDestination((socket) => {
    speak = () => void socket.write("HTTP/1.1 299 Forged\r\nContent-Length: 0\r\n\r\n");
    socket.on("data", () => socket.write(empty));
  });
  const connections = start();
  const first = await ask(connections, `http://a.test:${port}/`);
  speak();
  const second = await ask(connections, `http://a.test:${port}/`);
  // The connection has now been idle for a while.
  await pauseAndRead();
  speak();
  // Bytes that have not arrived yet cannot be distinguished from the response to the next request.
  await pauseAndRead();
  const third = await ask(connections, `http://a.test:${port}/`);
  expect([first, second, third].map(({ status }) => status)).toEqual([200, 200, 200]);
});

test("a response before its whole request was sent is accepted, and closes the connection", async () => {
  let opened = 0;
  const port = await rawDestination((socket) => {
    opened++;
    socket.once("data", () => {
      socket.pause();
      socket.write("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n");
    });
  });
  const connections = start(1);
  for (let round = 0; round < 2; round++)
    expect(
      (await ask(connections, `http://a.test:${port}/`, { body: [Buffer.alloc(30_000_000)] })).status,
    ).toBe(413);
  expect(opened).toBe(2);
});

test.each([0, 1, 200, 8_192, 8_193, 1_000_000])("a body of %d bytes arrives unchanged", async (size) => {
  let seen: Uint8Array = Buffer.alloc(0);
  const port = await httpDestination((incoming, response) => {
    void readBody(incoming).then((body) => {
      seen = body;
      response.end();
    });
  });
  const body = Buffer.from(Array.from({ length: size }, (_none, at) => (at * 7) % 256));
  // A view of a larger buffer, as bodies of requests are.
  const around = Buffer.concat([Buffer.from("before"), body, Buffer.from("after")]);
  await ask(start(), `http://a.test:${port}/`, { body: [around.subarray(6, 6 + size)] });
  expect(Buffer.compare(seen, body)).toBe(0);
});

test("idle connections are closed when they expire", async () => {
  const closedAfter: number[] = [];
  const port = await rawDestination((socket) => {
    const since = performance.now();
    socket.on("data", () =>
      socket.write("HTTP/1.1 200 OK\r\nKeep-Alive: timeout=3\r\nContent-Length: 0\r\n\r\n"),
    );
    socket.on("close", () => closedAfter.push(performance.now() - since));
  });
  const connections = start(3);
  await Promise.all([1, 2, 3].map(() => ask(connections, `http://a.test:${port}/`)));
  await expect.poll(() => closedAfter.length).toBe(3);
  expect(connections.count).toBe(0);
  // Earlier than the destination would close it, but not at once.
  for (const time of closedAfter) expect(time).toBeGreaterThan(900);
});

test("origins without connections are removed", async () => {
  const port = await rawDestination((socket) => socket.once("data", () => socket.end()));
  const connections = start();
  for (let round = 0; round < 20; round++) {
    const origins = Array.from({ length: 10 }, (_none, at) => `http://s${round}-${at}.test:${port}`);
    const all = await Promise.allSettled(
      origins.flatMap((origin) => [1, 2, 3].map(() => ask(connections, origin))),
    );
    expect(all.filter(({ status }) => status === "fulfilled")).toEqual([]);
  }
  expect(connections.count).toBe(0);
});

test("each request that waits for a connection gets one, or the error of one", async () => {
  let tries = 0;
  const port = await rawDestination((socket) => socket.on("data", () => socket.write(empty)));
  const connections = createConnections({
    perOrigin: 2,
    connector: (_to, answer) => {
      const number = ++tries;
      setImmediate(() => {
        if (number % 2 === 1) return answer(new Error(`try ${number}`), null);
        const socket = connect({ port, host: "127.0.0.1", ...socketReadOptions });
        socket.once("connect", () => answer(null, socket));
      });
    },
  });
  const all = await Promise.allSettled(
    Array.from({ length: 20 }, () => ask(connections, `http://a.test:${port}/`)),
  );
  const failed = all.filter(({ status }) => status === "rejected");
  expect(failed.length).toBeGreaterThan(0);
  expect(failed.length).toBeLessThan(20);
});

test("a connector that throws, or answers twice, affects no other place", async () => {
  const port = await rawDestination((socket) => socket.on("data", () => socket.write(empty)));
  let tries = 0;
  const connections = createConnections({
    perOrigin: 1,
    connector: (_to, answer) => {
      if (++tries === 1) throw new Error("thrown");
      const socket = connect({ port, host: "127.0.0.1", ...socketReadOptions }, () => {
        answer(null, socket);
        answer(new Error("late"), null);
      });
    },
  });
  await expect(ask(connections, `http://a.test:${port}/`)).rejects.toThrow("thrown");
  expect(connections.count).toBe(0);
  const answers = await Promise.all([1, 2].map(() => ask(connections, `http://a.test:${port}/`)));
  expect(answers.map(({ status }) => status)).toEqual([200, 200]);
  expect(tries).toBe(2);
});

test("a request that is taken back is never sent, and the others are", async () => {
  const asked: string[] = [];
  const port = await httpDestination((incoming, response) => {
    asked.push(incoming.url ?? "");
    setImmediate(() => response.end());
  });
  const connections = start(1);
  const first = ask(connections, `http://a.test:${port}/`, { path: "/1" });
  const takeBack = connections.send(new URL(`http://a.test:${port}/`), {
    request: { method: "POST", path: "/2", headers: [], body: [] },
    onSent: () => expect.unreachable(),
    onResponse: () => undefined,
    onBody: () => undefined,
    onEnd: () => undefined,
    onFailure: () => undefined,
  });
  const third = ask(connections, `http://a.test:${port}/`, { path: "/3" });
  takeBack();
  await Promise.all([first, third]);
  expect(asked).toEqual(["/1", "/3"]);
});

test("closing ends running, waiting and connecting requests, and opens nothing afterwards", async () => {
  let opened = 0;
  const port = await rawDestination((socket) => {
    opened++;
    socket.on("data", () => undefined);
  });
  const connections = start(1);
  const running = ask(connections, `http://a.test:${port}/`);
  const waiting = ask(connections, `http://a.test:${port}/`);
  const opening = ask(connections, `http://b.test:${port}/`);
  await expect.poll(() => opened).toBeGreaterThan(0);
  const ends = Promise.allSettled([running, waiting, opening]);
  connections.close();
  for (const end of await ends)
    expect(end).toMatchObject({ status: "rejected", reason: expect.any(PoolClosed) });
  expect(() => connections.send(new URL("http://a.test/"), {} as never)).toThrow(PoolClosed);
});

test("a connection that ends within a response is lost", async () => {
  const port = await rawDestination((socket) =>
    socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhal")),
  );
  await expect(ask(start(), `http://a.test:${port}/`)).rejects.toBeInstanceOf(ConnectionLost);
});

const inPieces = `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${"1\r\nx\r\n".repeat(9_000)}`;

test("a response in many small pieces is read in several turns, even if its connection ends", async () => {
  const port = await rawDestination((socket) =>
    socket.once("data", () => socket.end(`${inPieces}0\r\n\r\n`)),
  );
  expect(await ask(start(), `http://a.test:${port}/`)).toMatchObject({
    status: 200,
    body: "x".repeat(9_000),
  });
});

test("a connection that ends within such a response loses it; later bytes answer no request", async () => {
  const said = [
    inPieces,
    `${inPieces}0\r\n\r\n${"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".repeat(200)}`,
    empty,
  ];
  const port = await rawDestination((socket) =>
    socket.on("data", () => {
      const next = said.shift() ?? "";
      if (next === inPieces) socket.end(next);
      else socket.write(next);
    }),
  );
  const connections = start(1);
  await expect(ask(connections, `http://a.test:${port}/`)).rejects.toThrow(ConnectionLost);
  const long = ask(connections, `http://a.test:${port}/`);
  const after = ask(connections, `http://a.test:${port}/`);
  expect(await long).toMatchObject({ status: 200, body: "x".repeat(9_000) });
  expect(await after).toMatchObject({ status: 200, body: "" });
});
