import { createServer as createPlainServer, type AddressInfo, type Socket } from "node:net";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { describe, expect, onTestFinished, test } from "vitest";
import type { Outcome } from "../../src/core/model/message.ts";
import { createLongWork, systemClock } from "../../src/clock/clock.ts";
import { createDeliver } from "../../src/delivery/deliver.ts";
import { createEgress } from "../../src/delivery/http/egress.ts";
import type { Resolve } from "../../src/delivery/http/dns.ts";
import {
  call,
  findClosedPort,
  makeDelivery,
  httpDestination,
  createTestDeliver,
  rawDestination,
  scriptedDestination,
  start,
} from "./http/destination.ts";

const text = ({ body }: Outcome): string => Buffer.from(body).toString("latin1");

describe("the answer", () => {
  test("is an outcome with status, headers and body", async () => {
    const port = await httpDestination((_incoming, response) => {
      response.writeHead(503, ["x-b", "1", "X-b", "2", "Retry-After", "7"]).end("busy");
    });
    const outcome = await start()(makeDelivery(`http://127.0.0.1:${port}/`, {}, 3));
    expect(outcome).toMatchObject({ account: "acc", messageId: "msg_1", host: `127.0.0.1:${port}`, attempt: 3, status: 503, error: null });
    expect(outcome.headers.slice(0, 3)).toEqual([
      ["X-B", "1"],
      ["X-B", "2"],
      ["Retry-After", "7"],
    ]);
    expect(text(outcome)).toBe("busy");
    expect(Number.isInteger(outcome.took) && outcome.took >= 0).toBe(true);
  });

  test("is not kept when nobody will read it", async () => {
    const status = { code: 200 };
    const port = await httpDestination((_incoming, response) => response.writeHead(status.code, { "X-A": "1" }).end("body"));
    const unread = { callback: null, reportsOn: null };
    expect(await call(`http://127.0.0.1:${port}/`, unread)).toMatchObject({ status: 200, headers: [], body: new Uint8Array(0) });
    const told = await call(`http://127.0.0.1:${port}/`, { ...unread, reportsOn: { kind: "callback", messageId: "msg_0", dlqId: null } });
    expect(text(told)).toBe("body");
    status.code = 400;
    expect(text(await call(`http://127.0.0.1:${port}/`, unread))).toBe("body");
  });

  test("that redirects is not followed", async () => {
    let visited = 0;
    const port = await httpDestination((_incoming, response) => {
      visited++;
      response.writeHead(302, { Location: "/elsewhere" }).end();
    });
    const outcome = await call(`http://127.0.0.1:${port}/`);
    expect(outcome.status).toBe(302);
    expect(outcome.headers).toContainEqual(["Location", "/elsewhere"]);
    expect(visited).toBe(1);
  });

  test.each([
    ["gzip", gzipSync("hello")],
    ["br", brotliCompressSync("hello")],
  ])("is not unpacked: %s", async (coding, packed) => {
    const port = await httpDestination((_incoming, response) => response.writeHead(200, { "Content-Encoding": coding }).end(packed));
    expect(Buffer.from((await call(`http://127.0.0.1:${port}/`)).body)).toEqual(packed);
  });

  test("is exactly as large as its bytes, so that nothing else is kept or copied with it", async () => {
    const port = await httpDestination((_incoming, response) => response.end("four"));
    const { body } = await call(`http://127.0.0.1:${port}/`);
    expect(body.buffer.byteLength).toBe(4);
  });

  test.each([
    ["no content", "HTTP/1.1 204 No Content\r\n\r\n", 204, ""],
    ["content where none belongs", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", 204, ""],
    ["hints before it", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok"],
    ["chunks and trailers", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nX-T: 1\r\n\r\n", 200, "abc"],
    ["an unknown status", "HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n", 799, ""],
    ["bytes beyond ASCII in a header", "HTTP/1.1 200 \xff\r\nX-A: \xe9\r\nContent-Length: 0\r\n\r\n", 200, ""],
  ])("may have %s", async (_case, said, status, body) => {
    const port = await scriptedDestination(said);
    const outcome = await call(`http://127.0.0.1:${port}/`);
    expect([outcome.error, outcome.status, text(outcome)]).toEqual([null, status, body]);
  });

  test("may end with the connection", async () => {
    const port = await rawDestination((socket) => socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\n\r\nall of it")));
    expect(text(await call(`http://127.0.0.1:${port}/`))).toBe("all of it");
  });

  test.each([
    ["999", "999", false],
    ["1000", "1000", false],
    ["1001", "1000", true],
    ["100000000000", "1000", true],
  ])("of %s bytes is kept up to the limit, and then the connection is closed", async (length, kept, cut) => {
    let wasCut = (): void => {};
    const cutOff = new Promise<void>((resolve) => (wasCut = resolve));
    const port = await rawDestination((socket) => {
      socket.once("data", () =>
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${length}\r\n\r\n${"x".repeat(Math.min(Number(length), 100_000))}`),
      );
      socket.on("close", wasCut);
    });
    const outcome = await call(`http://127.0.0.1:${port}/`, { callback: null, keepResponse: true });
    expect([outcome.error, outcome.status, String(outcome.body.length), outcome.cut === true]).toEqual([null, 200, kept, cut]);
    if (cut) await cutOff;
  });

  test("without an end is cut too, even if nobody will read it", async () => {
    const port = await httpDestination((_incoming, response) => {
      const timer = setInterval(() => response.write("x".repeat(100)), 1);
      response.on("close", () => clearInterval(timer));
    });
    expect(await call(`http://127.0.0.1:${port}/`, { callback: null })).toMatchObject({ status: 200, error: null });
  });

  test("keeps a hundred headers at most", async () => {
    const many = Array.from({ length: 500 }, (_none, at) => `X-${at}: 1\r\n`).join("");
    const port = await scriptedDestination(`HTTP/1.1 200 OK\r\nContent-Length: 0\r\n${many}\r\n`);
    const outcome = await call(`http://127.0.0.1:${port}/`);
    expect([outcome.status, outcome.headers.length, outcome.headers[1]?.[0]]).toEqual([200, 100, "X-0"]);
  });
});

describe("no answer", () => {
  const none = { status: null, headers: [], body: new Uint8Array(0) };

  test.each([
    ["says nothing", (): void => {}],
    ["stops within the headers", (socket: Socket): unknown => socket.write("HTTP/1.1 200 OK\r\nX-A: ")],
    ["stops within the body", (socket: Socket): unknown => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")],
    ["drips", (socket: Socket): unknown => drip(socket, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "x")],
    ["drips headers", (socket: Socket): unknown => drip(socket, "HTTP/1.1 200 OK\r\n", "X: 1\r\n")],
    ["hints for ever", (socket: Socket): unknown => drip(socket, "", "HTTP/1.1 103 Early Hints\r\n\r\n")],
  ])("within the timeout, from one that %s", async (_case, act) => {
    let hungUp = (): void => {};
    const closed = new Promise<void>((resolve) => (hungUp = resolve));
    const port = await rawDestination((socket) => {
      socket.once("data", () => act(socket));
      socket.on("close", hungUp);
    });
    const outcome = await call(`http://127.0.0.1:${port}/`, { timeout: 150 });
    expect(outcome).toMatchObject({ ...none, error: "timed out after 150 ms" });
    await closed;
  });

  function drip(socket: Socket, first: string, then: string): void {
    socket.write(first);
    const timer = setInterval(() => socket.write(then), 5);
    socket.on("close", () => clearInterval(timer));
  }

  test("within the timeout, when the destination reads nothing of a large body", async () => {
    const port = await rawDestination((socket) => socket.pause());
    const outcome = await call(`http://127.0.0.1:${port}/`, { timeout: 150, body: new Uint8Array(20_000_000) });
    expect(outcome).toMatchObject({ ...none, error: "timed out after 150 ms" });
  });

  test("within the timeout, while the name is looked up, or TLS is not answered", async () => {
    const waiting = await call("http://shop.test/", { timeout: 100 }, { resolve: () => new Promise(() => {}) });
    expect(waiting).toMatchObject({ ...none, host: "shop.test", error: "timed out after 100 ms" });
    const port = await rawDestination(() => {});
    expect((await call(`https://127.0.0.1:${port}/`, { timeout: 1_000 }, { connectTimeout: 60_000 })).error).toBe("timed out after 1 s");
  });

  test("before the time for connecting is over", async () => {
    const outcome = await call("http://shop.test/", {}, { connectTimeout: 100, resolve: () => new Promise(() => {}) });
    expect(outcome).toMatchObject({ ...none, error: "connecting timed out" });
  });

  test("once it timed out waiting for a connection, the request is never sent", async () => {
    const arrived: string[] = [];
    let release = (): void => {};
    const port = await httpDestination((incoming, response) => {
      arrived.push(incoming.url ?? "");
      release = () => response.end();
    });
    const deliver = start({ connectionsPerOrigin: 1 });
    const first = deliver(makeDelivery(`http://127.0.0.1:${port}/first`));
    expect((await deliver(makeDelivery(`http://127.0.0.1:${port}/late`, { timeout: 100 }))).error).toBe("timed out after 100 ms");
    release();
    expect((await first).status).toBe(200);
    const third = deliver(makeDelivery(`http://127.0.0.1:${port}/third`, { timeout: 5_000 }));
    await expect.poll(() => arrived.length).toBe(2);
    release();
    expect((await third).status).toBe(200);
    expect(arrived).toEqual(["/first", "/third"]);
  });

  test.each([
    ["closes at once", (socket: Socket): unknown => socket.end()],
    ["resets", (socket: Socket): unknown => socket.resetAndDestroy()],
    ["closes within the headers", (socket: Socket): unknown => socket.end("HTTP/1.1 200 OK\r\nX-A: 1\r\n")],
    ["closes within the body", (socket: Socket): unknown => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")],
    ["closes within a chunk", (socket: Socket): unknown => socket.end("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf")],
  ])("from one that %s", async (_case, act) => {
    const port = await rawDestination((socket) => socket.once("data", () => act(socket)));
    expect(await call(`http://127.0.0.1:${port}/`)).toMatchObject({ ...none, error: "connection lost before the answer was complete" });
  });

  test.each([
    ["SSH-2.0-OpenSSH\r\n", "the answer is not valid HTTP: it does not begin with a status line"],
    ["HTTP/1.1 200 OK\r\nContent Length: 1\r\n\r\n", "the answer is not valid HTTP: a header is malformed"],
    [
      "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "the answer is not valid HTTP: it has two lengths",
    ],
    ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "the answer is not valid HTTP: the size of a chunk is malformed"],
    [
      "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
      "the answer is 101 Switching Protocols, which the request did not ask for",
    ],
  ])("from one that says %j", async (said, error) => {
    const port = await scriptedDestination(said);
    expect(await call(`http://127.0.0.1:${port}/`)).toMatchObject({ ...none, error });
  });

  test.each([
    ["a header of 40,000 bytes", `X-A: ${"x".repeat(40_000)}\r\n\r\n`],
    ["20,000 headers", "X-A: 1\r\n".repeat(20_000)],
  ])("from one that sends %s", async (_case, headers) => {
    const port = await scriptedDestination(`HTTP/1.1 200 OK\r\n${headers}`);
    expect(await call(`http://127.0.0.1:${port}/`)).toMatchObject({ ...none, error: "response headers larger than 32 KiB" });
  });

  test("from a port that nobody listens on, or a name that nobody has", async () => {
    const port = await findClosedPort();
    expect(await call(`http://127.0.0.1:${port}/`)).toMatchObject({ ...none, error: "connection refused" });
    expect((await call("http://127.0.0.1:0/")).status).toBe(null);
    const unknown: Resolve = () => Promise.reject(Object.assign(new Error("internal.name"), { code: "ENOTFOUND" }));
    expect(await call("http://shop.test/", {}, { resolve: unknown })).toMatchObject({ ...none, error: "name not found" });
  });

  test("from an address that may not be called", async () => {
    let called = 0;
    const port = await httpDestination((_incoming, response) => {
      called++;
      response.end();
    });
    for (const host of ["127.0.0.1", "0x7f000001", "[::ffff:7f00:1]"]) {
      const { error } = await call(`http://${host}:${port}/`, {}, { allow: [] });
      expect(error).toMatch(/^address \S+ is not public: allow it with WAYPOST_EGRESS_ALLOW=\S+$/);
    }
    const named = await call(`http://shop.test:${port}/`, {}, { allow: [], resolve: async () => ["8.8.8.8", "127.0.0.1"] });
    expect(named.error).toBe(
      "address of shop.test is not public: the operator of the server can look it up, and allow it with WAYPOST_EGRESS_ALLOW",
    );
    expect(called).toBe(0);
  });

  test.each([
    ["not a url", "", "the URL is not valid"],
    ["http://127.0.0.1:99999/", "", "the URL is not valid"],
    ["ftp://shop.test/", "shop.test", "the URL is neither http nor https"],
  ])("to %s, which cannot be called", async (url, host, error) => {
    expect(await call(url)).toMatchObject({ ...none, host, error });
  });

  test.each([
    ["X A", "1"],
    ["", "1"],
    ["X-A", "1\r\nX-B: 2"],
    ["X-A", "日本"],
    ["X-A\r\nX-B", "1"],
  ])("when HTTP has no room for the header %j: %j", async (name, value) => {
    const outcome = await call("http://127.0.0.1:1/", { headers: [[name, value]] });
    expect(outcome).toMatchObject({ ...none, host: "127.0.0.1:1", error: `the header ${JSON.stringify(name)} cannot be sent over HTTP` });
  });
});

test("a request is made and signed after all who wait for an answer have gone on", async () => {
  const port = await httpDestination((_incoming, response) => response.end());
  const order: string[] = [];
  const deliver = createTestDeliver({
    newId: (kind) => {
      order.push("signed");
      return kind;
    },
  });
  const { outcome } = deliver(makeDelivery(`http://127.0.0.1:${port}/`));
  // As many steps as an answer may take on its way out.
  for (let step = 0; step < 20; step++) await Promise.resolve();
  order.push("answered");
  expect((await outcome).status).toBe(200);
  expect(order).toEqual(["answered", "signed"]);
});

describe("aborting", () => {
  test("ends a call and closes its connection, and no other one", async () => {
    let open = 0;
    const port = await rawDestination((socket) => {
      open++;
      socket.resume();
      socket.on("close", () => open--);
    });
    const deliver = createTestDeliver();
    const [first, ...others] = [1, 2, 3].map(() => deliver(makeDelivery(`http://127.0.0.1:${port}/`)));
    await expect.poll(() => open).toBe(3);
    first?.abort();
    expect(await first?.outcome).toMatchObject({ status: null, error: "aborted" });
    await expect.poll(() => open).toBe(2);
    for (const call of others) call.abort();
    expect((await Promise.all(others.map(({ outcome }) => outcome))).map(({ error }) => error)).toEqual(["aborted", "aborted"]);
    await expect.poll(() => open).toBe(0);
  });

  test.each([
    ["at once", async () => undefined],
    ["before there is a connection", () => new Promise<void>((resolve) => process.nextTick(resolve))],
  ])("%s sends nothing", async (_when, moment) => {
    const received: string[] = [];
    const port = await httpDestination(({ url = "" }, response) => {
      received.push(url);
      response.end();
    });
    const deliver = createTestDeliver();
    const call = deliver(makeDelivery(`http://127.0.0.1:${port}/aborted`));
    await moment();
    call.abort();
    expect(await call.outcome).toMatchObject({ host: `127.0.0.1:${port}`, status: null, error: "aborted" });
    // Whatever it had sent would have come before this.
    expect((await deliver(makeDelivery(`http://127.0.0.1:${port}/other`)).outcome).status).toBe(200);
    expect(received).toEqual(["/other"]);
  });

  test("after the end changes nothing", async () => {
    const port = await httpDestination((_incoming, response) => response.end());
    const call = createTestDeliver()(makeDelivery(`http://127.0.0.1:${port}/`));
    expect((await call.outcome).status).toBe(200);
    call.abort();
    expect((await call.outcome).status).toBe(200);
  });

  test("happens to whatever still runs when it is closed, and to whatever comes later", async () => {
    const server = createPlainServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const { deliver, close } = createDeliver({
      egress: createEgress({ allow: ["127.0.0.1"] }),
      clock: systemClock,
      longWork: createLongWork(),
      limits: { responseBytes: 10, connectTimeout: 1_000, connectionsPerOrigin: 2 },
      region: "US-EAST-1",
      newId: (kind) => kind,
    });
    const running = [1, 2, 3, 4].map(() => deliver(makeDelivery(url)).outcome);
    await new Promise((resolve) => server.once("connection", resolve));
    await close();
    expect((await Promise.all(running)).map(({ error }) => error)).toEqual(running.map(() => "aborted"));
    expect((await deliver(makeDelivery(url)).outcome).error).toBe("aborted");
  });
});

describe("connections", () => {
  test("are kept and used again, one request at a time, and no more of them than allowed", async () => {
    let opened = 0;
    let running = 0;
    let most = 0;
    const server = await rawDestination((socket) => {
      opened++;
      socket.on("data", () => {
        most = Math.max(most, ++running);
        setImmediate(() => {
          running--;
          socket.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        });
      });
    });
    const deliver = start({ connectionsPerOrigin: 3 });
    const outcomes = await Promise.all(Array.from({ length: 50 }, () => deliver(makeDelivery(`http://127.0.0.1:${server}/`))));
    expect(outcomes.filter(({ status }) => status !== 200)).toEqual([]);
    expect(opened).toBeLessThanOrEqual(3);
    expect(most).toBeLessThanOrEqual(3);
  });
});
