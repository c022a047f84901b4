import { once } from "node:events";
import { connect } from "node:net";
import type { Socket } from "node:net";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { createTestServer } from "../testServer.ts";
import { listen } from "../wire.ts";
import { bodies, open, pause, request } from "./rawConnection.ts";

test("a half-closed connection is answered and then closed; a body that breaks off is refused", async () => {
  const server = await open();
  const whole = server.talk();
  const broken = server.talk();
  const silent = server.talk();
  whole.socket.end(request("whole"), "latin1");
  broken.socket.end(request("broken").slice(0, -1), "latin1");
  silent.socket.end();
  expect(await whole.closed()).toMatch(/^HTTP\/1.1 200 OK\r\n/);
  expect(await broken.closed()).toMatch(
    new RegExp(
      String.raw`^HTTP/1.1 400 Bad Request\r\n[^]*\{"error":"request: not valid HTTP[^"]*",` +
        String.raw`"code":"invalid","docs":"/docs/errors#invalid"\}$`,
    ),
  );
  expect(await silent.closed()).toBe("");
  expect(bodies(server)).toEqual(["whole"]);
});

test("a silent connection gets 408, an idle one is closed, an unfinished body gets more time", async () => {
  const server = await open();
  // Long enough for the other two to be served on a busy machine.
  server.api.server.keepAliveTimeout = 900;
  server.api.server.headersTimeout = 900;
  const silent = server.talk();
  const used = server.talk();
  const begun = server.talk();
  await used.write(request("used"));
  expect((await used.answer()).head).toContain("Keep-Alive: timeout=0");
  await begun.write(request("begun").slice(0, -1));
  const last =
    String.raw`\{"error":"request: it did not arrive in time",` +
    String.raw`"code":"request-timeout","docs":"/docs/errors#request-timeout"\}$`;
  expect(await silent.closed()).toMatch(new RegExp(String.raw`^HTTP/1.1 408 Request Timeout\r\n[^]*${last}`));
  expect(await used.closed()).toBe("");
  await expect.poll(() => server.usual.length).toBe(1);
  await begun.write("n");
  expect((await begun.answer()).status).toBe(200);
  expect([bodies(server), server.usual.length]).toEqual([["used", "begun"], 1]);
});

test("a connection stays open longer than announced, so that no request meets its end", async () => {
  const server = await open();
  const served = once(server.api.server, "connection");
  const talk = server.talk();
  const [socket] = (await served) as [Socket];
  await talk.write(request("x"));
  await talk.answer();
  expect(socket.timeout).toBeGreaterThan(server.api.server.keepAliveTimeout);
});

test(
  "a connection that stops within a body during a long token look-up times out as well",
  { tags: "long" },
  async () => {
    let held: Promise<void> | null = null;
    const server = await open({
      // The fast path waits for the look-up as long as it takes.
      alarm: () => () => undefined,
      wrap: (store) => ({
        ...store,
        read: {
          ...store.read,
          accountByToken: async (hash) => (await held, store.read.accountByToken(hash)),
        },
      }),
    });
    server.clock.now += 60_000;
    const looking = Promise.withResolvers<void>();
    held = looking.promise;
    server.api.server.keepAliveTimeout = 1;
    const served = once(server.api.server, "connection");
    const talk = server.talk();
    const [socket] = (await served) as [Socket];
    const rung = once(socket, "timeout");
    await talk.write(request("begun").slice(0, -1));
    await rung;
    looking.resolve();
    // Node's own parser has received the connection.
    while (socket.timeout !== 0) await pause(5);
    await talk.write("n");
    expect((await talk.answer()).status).toBe(200);
  },
);

test("a stopping server closes idle connections at once and answers running requests", async () => {
  const asked = Promise.withResolvers<void>();
  const held = Promise.withResolvers<void>();
  const server = await open({
    wrap: (store) => ({
      ...store,
      execute: async (...given) => (asked.resolve(), await held.promise, store.execute(...given)),
    }),
  });
  const idle = server.talk();
  const busy = server.talk();
  await busy.write(request("busy"));
  await asked.promise;
  const closing = server.api.close();
  expect(await idle.closed()).toBe("");
  held.resolve();
  expect(await busy.closed()).toMatch(/^HTTP\/1.1 200 OK\r\n[^]*Connection: close/);
  await closing;
  expect(bodies(server)).toEqual(["busy"]);
});

test("a stopping server completes a response to a slow reader", async () => {
  const server = await open();
  const served = once(server.api.server, "connection");
  const talk = server.talk();
  const [socket] = (await served) as [Socket];
  talk.socket.pause();
  const list = JSON.stringify([
    { destination: "https://e.example/" },
    ...Array.from({ length: 3_000 }, () => ({ destination: "." })),
  ]);
  let sent = 0;
  while (socket.writableLength === 0) {
    const before = server.lines.length;
    await talk.write(request(list, [], "POST /v2/batch HTTP/1.1"));
    while (server.lines.length === before) await pause(5);
    await pause(20);
    sent++;
  }
  const closing = server.api.close();
  await pause(20);
  talk.socket.resume();
  for (let answered = 0; answered < sent; answered++) expect((await talk.answer()).status).toBe(200);
  await closing;
});

test("a request that runs too long ends with the server", async () => {
  const asked = Promise.withResolvers<void>();
  const server = await open({
    wrap: (store) => ({ ...store, execute: () => (asked.resolve(), new Promise(() => undefined)) }),
  });
  const talk = server.talk();
  await talk.write(request("x"));
  await asked.promise;
  const closing = server.api.close();
  server.api.server.closeAllConnections();
  expect(await talk.closed()).toBe("");
  await closing;
});

test("a client that reads no responses is not read from until it reads them", { tags: "long" }, async () => {
  const server = await open();
  const talk = server.talk();
  talk.socket.pause();
  // Each response is long, because the refusal quotes the destination.
  const text = request("x", [], `POST /v2/publish/ftp://${"a".repeat(150)} HTTP/1.1`);
  let sent = 0;
  for (; sent < 200_000 && talk.socket.writableLength < 1_000_000; sent++) {
    talk.socket.write(text, "latin1");
    if (sent % 100 === 0) await pause(0);
  }
  await pause(200);
  expect(server.lines.length).toBeLessThan(sent);
  talk.socket.resume();
  while (server.lines.length < sent) {
    talk.received = Buffer.alloc(0);
    await pause(5);
  }
});

test("requests behind the last one of a connection are ignored at any time", async () => {
  const server = await open();
  const served = once(server.api.server, "connection");
  const talk = server.talk();
  const [socket] = (await served) as [Socket];
  // The socket stays open, as with a sender that reads slowly.
  socket.end = () => socket;
  onTestFinished(() => void socket.destroy());
  await talk.write(request("last", ["Connection: close"]));
  expect((await talk.answer()).head).toContain("Connection: close");
  await talk.write(request("behind"));
  await pause(30);
  expect(bodies(server)).toEqual(["last"]);
});

test.each(["CONNECT e.example:443 HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost x\r\n\r\n"])(
  "a refused client that never closes its connection loses it: %j",
  { tags: "long" },
  async (bytes) => {
    const server = await createTestServer();
    const socket = connect({ port: await listen(server), host: "127.0.0.1", allowHalfOpen: true });
    onTestFinished(() => void socket.destroy());
    socket.on("error", () => undefined).resume();
    socket.write(bytes);
    await once(socket, "end");
    await expect
      .poll(() => promisify(server.api.server.getConnections.bind(server.api.server))(), { timeout: 25_000 })
      .toBe(0);
  },
);

test("a client that sends CONNECT and breaks off does no harm", async () => {
  const server = await createTestServer();
  const port = await listen(server);
  const breakOff = async (): Promise<void> => {
    const socket = connect({ port, host: "127.0.0.1" }).on("error", () => undefined);
    await once(socket, "connect");
    socket.write("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
    socket.resetAndDestroy();
  };
  // The response meets the broken connection in about 1 case of 100.
  for (let round = 0; round < 60; round++) await Promise.all(Array.from({ length: 10 }, breakOff));
  expect((await server.ask("GET", "/v2/health")).status).toBe(200);
});
