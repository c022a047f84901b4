import type { Socket } from "node:net";
import { describe, expect, test } from "vitest";
import type { Resolve } from "../../../src/engine/delivery/http/dns.ts";
import { findFreePort } from "../../freePort.ts";
import {
  call,
  makeDelivery,
  httpDestination,
  rawDestination,
  scriptedDestination,
  start,
} from "./http/destination.ts";

describe("a failed call", () => {
  const none = { status: null, headers: [], body: new Uint8Array(0) };

  test.each([
    ["says nothing", (): void => {}],
    ["stops within the headers", (socket: Socket): unknown => socket.write("HTTP/1.1 200 OK\r\nX-A: ")],
    [
      "stops within the body",
      (socket: Socket): unknown => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
    ],
    [
      "drips",
      (socket: Socket): unknown => drip(socket, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "x"),
    ],
    ["drips headers", (socket: Socket): unknown => drip(socket, "HTTP/1.1 200 OK\r\n", "X: 1\r\n")],
    [
      "sends endless early hints",
      (socket: Socket): unknown => drip(socket, "", "HTTP/1.1 103 Early Hints\r\n\r\n"),
    ],
  ])("times out if the destination %s", async (_case, act) => {
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

  test("times out if the destination reads nothing of a large body", async () => {
    const port = await rawDestination((socket) => socket.pause());
    const outcome = await call(`http://127.0.0.1:${port}/`, {
      timeout: 150,
      body: new Uint8Array(20_000_000),
    });
    expect(outcome).toMatchObject({ ...none, error: "timed out after 150 ms" });
  });

  test("times out while the name is looked up or TLS does not respond", async () => {
    const waiting = await call(
      "http://shop.test/",
      { timeout: 100 },
      { resolve: () => new Promise(() => {}) },
    );
    expect(waiting).toMatchObject({ ...none, host: "shop.test", error: "timed out after 100 ms" });
    const port = await rawDestination(() => {});
    expect(
      (await call(`https://127.0.0.1:${port}/`, { timeout: 1_000 }, { connectTimeout: 60_000 })).error,
    ).toBe("timed out after 1 s");
  });

  test("ends when the time for connecting is over", async () => {
    const outcome = await call(
      "http://shop.test/",
      {},
      { connectTimeout: 100, resolve: () => new Promise(() => {}) },
    );
    expect(outcome).toMatchObject({ ...none, error: "connecting timed out" });
  });

  test("that timed out while it waited for a connection is never sent", async () => {
    const arrived: string[] = [];
    let release = (): void => {};
    const port = await httpDestination((incoming, response) => {
      arrived.push(incoming.url ?? "");
      release = () => response.end();
    });
    const deliver = start({ connectionsPerOrigin: 1 });
    const first = deliver(makeDelivery(`http://127.0.0.1:${port}/first`));
    expect((await deliver(makeDelivery(`http://127.0.0.1:${port}/late`, { timeout: 100 }))).error).toBe(
      "timed out after 100 ms",
    );
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
    [
      "closes within the body",
      (socket: Socket): unknown => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
    ],
    [
      "closes within a chunk",
      (socket: Socket): unknown =>
        socket.end("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf"),
    ],
  ])("is reported if the destination %s", async (_case, act) => {
    const port = await rawDestination((socket) => socket.once("data", () => act(socket)));
    expect(await call(`http://127.0.0.1:${port}/`)).toMatchObject({
      ...none,
      error: "connection lost before the response was complete",
    });
  });

  test.each([
    ["SSH-2.0-OpenSSH\r\n", "the response is not valid HTTP: it does not begin with a status line"],
    ["HTTP/1.1 200 OK\r\nContent Length: 1\r\n\r\n", "the response is not valid HTTP: a header is malformed"],
    [
      "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "the response is not valid HTTP: it has two lengths",
    ],
    [
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "the response is not valid HTTP: the size of a chunk is malformed",
    ],
    [
      "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
      "the response is 101 Switching Protocols, which the request did not ask for",
    ],
  ])("reports a response that is not accepted: %j", async (said, error) => {
    const port = await scriptedDestination(said);
    expect(await call(`http://127.0.0.1:${port}/`)).toMatchObject({ ...none, error });
  });

  test.each([
    ["a header of 40,000 bytes", `X-A: ${"x".repeat(40_000)}\r\n\r\n`],
    ["20,000 headers", "X-A: 1\r\n".repeat(20_000)],
  ])("reports headers that are too large: %s", async (_case, headers) => {
    const port = await scriptedDestination(`HTTP/1.1 200 OK\r\n${headers}`);
    expect(await call(`http://127.0.0.1:${port}/`)).toMatchObject({
      ...none,
      error: "response headers larger than 32 KiB",
    });
  });

  test("reports a closed port and an unknown name", async () => {
    const port = await findFreePort();
    expect(await call(`http://127.0.0.1:${port}/`)).toMatchObject({ ...none, error: "connection refused" });
    expect((await call("http://127.0.0.1:0/")).status).toBe(null);
    const unknown: Resolve = () =>
      Promise.reject(Object.assign(new Error("internal.name"), { code: "ENOTFOUND" }));
    expect(await call("http://shop.test/", {}, { resolve: unknown })).toMatchObject({
      ...none,
      error: "name not found",
    });
  });

  test("reports an address that may not be called", async () => {
    let called = 0;
    const port = await httpDestination((_incoming, response) => {
      called++;
      response.end();
    });
    for (const host of ["127.0.0.1", "0x7f000001", "[::ffff:7f00:1]"]) {
      const { error } = await call(`http://${host}:${port}/`, {}, { allow: [] });
      expect(error).toMatch(/^address \S+ is not public: allow it with WAYPOST_EGRESS_ALLOW=\S+$/);
    }
    const named = await call(
      `http://shop.test:${port}/`,
      {},
      { allow: [], resolve: async () => ["8.8.8.8", "127.0.0.1"] },
    );
    expect(named.error).toBe(
      "address of shop.test is not public: the operator of the server can look it up, " +
        "and allow the name with WAYPOST_EGRESS_ALLOW=shop.test; a loopback address needs its own entry",
    );
    expect(called).toBe(0);
  });

  test.each([
    ["not a url", "", "the URL is not valid"],
    ["http://127.0.0.1:99999/", "", "the URL is not valid"],
    ["ftp://shop.test/", "shop.test", "the URL does not begin with http:// or https://"],
  ])("reports a URL that cannot be called: %s", async (url, host, error) => {
    expect(await call(url)).toMatchObject({ ...none, host, error });
  });

  test.each([
    ["X A", "1"],
    ["", "1"],
    ["X-A", "1\r\nX-B: 2"],
    ["X-A", "日本"],
    ["X-A\r\nX-B", "1"],
  ])("reports a header that cannot be sent over HTTP: %j: %j", async (name, value) => {
    const outcome = await call("http://127.0.0.1:1/", { headers: [[name, value]] });
    expect(outcome).toMatchObject({
      ...none,
      host: "127.0.0.1:1",
      error: `the header ${JSON.stringify(name)} cannot be sent over HTTP`,
    });
  });
});
