import { once } from "node:events";
import { connect } from "node:net";
import type { Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import type { Store } from "../../../src/engine/store/store.ts";
import { createTestServer, otherToken, token } from "../testServer.ts";
import { listen, parseReply, send } from "../wire.ts";

/** Returns the head of a request, with these header lines after the token. */
const headOf = (path: string, ...headers: readonly string[]): string =>
  [`POST ${path} HTTP/1.1`, "Host: x", `Authorization: Bearer ${token}`, ...headers, "", ""].join("\r\n");

/** Starts a publish with a declared body that never ends. */
async function unfinished(
  port: number,
  length: number,
  path = "/v2/publish/https://example.com",
): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  await once(socket, "connect");
  socket.write(`${headOf(path, `Content-Length: ${length}`)}begun`);
  return socket;
}

/** Waits for events of the sockets. Injected requests never pass through the event loop. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const mebi = 1024 * 1024;
const refused = { status: 503, body: { error: expect.stringContaining("retry later") } };

test("bodies without room are refused with 503 until other bodies end or break off", async () => {
  const server = await createTestServer({ requestBodyBytes: 1000 });
  const { ask } = server;
  const port = await listen(server);
  const publish = (bytes: number) =>
    ask("POST", "/v2/publish/https://example.com", { body: Buffer.alloc(bytes) });

  expect((await publish(900)).status).toBe(200);
  const slow = await unfinished(port, 900);
  while ((await publish(200)).status === 200) await turn();
  expect(await publish(200)).toMatchObject({ ...refused, headers: { "retry-after": "1" } });
  // A request with little or no body is still accepted.
  expect((await ask("GET", "/v2/dlq")).status).toBe(200);
  expect((await publish(0)).status).toBe(200);

  slow.destroy();
  while ((await publish(900)).status !== 200) await turn();
});

test("the bodies of an account take no more room than they leave, so others are accepted", async () => {
  const server = await createTestServer({ requestBodyBytes: 1000 });
  const port = await listen(server);
  const publish = (bytes: number, who = token) =>
    server.ask("POST", "/v2/publish/https://example.com", { token: who, body: Buffer.alloc(bytes) });
  const slow = await unfinished(port, 500);
  while ((await publish(1)).status === 200) await turn();
  expect(await publish(1)).toMatchObject({
    status: 503,
    body: { error: expect.stringContaining("account at capacity for request bodies") },
  });
  expect((await publish(500, otherToken)).status).toBe(200);
  expect((await publish(501, otherToken)).status).toBe(503);

  slow.destroy();
  while ((await publish(500)).status !== 200) await turn();
});

test("the body of a call to a source takes the room of its account", async () => {
  const server = await createTestServer({ requestBodyBytes: 1000 });
  const { body: source } = await server.ask("POST", "/v2/sources", {
    body: '{"destination":"https://e.example"}',
  });
  const publish = async (bytes: number, who: string): Promise<number> =>
    (await server.ask("POST", "/v2/publish/https://example.com", { token: who, body: Buffer.alloc(bytes) }))
      .status;
  await unfinished(await listen(server), 500, new URL(source.url).pathname);
  while ((await publish(1, token)) === 200) await turn();
  expect([await publish(1, token), await publish(500, otherToken)]).toEqual([503, 200]);
});

test("large declared bodies take no room before they arrive", async () => {
  const server = await createTestServer({ requestBodyBytes: 20 * mebi });
  const port = await listen(server);
  for (let number = 0; number < 6; number++) await unfinished(port, 8 * mebi);
  for (let turns = 0; turns < 20; turns++) await turn();
  expect(
    (await server.ask("POST", "/v2/publish/https://example.com", { body: Buffer.alloc(7 * mebi) })).status,
  ).toBe(200);
});

test("a large body is refused in the middle if there is no more room, and releases its own", async () => {
  // The limit is high enough that the slow body is never refused because of a publish in flight.
  const server = await createTestServer({ requestBodyBytes: 200_000 });
  const publish = (bytes: number) =>
    server.ask("POST", "/v2/publish/https://example.com", { body: Buffer.alloc(bytes) });
  const slow = await unfinished(await listen(server), 8 * mebi);
  slow.write(Buffer.alloc(90_000));
  while ((await publish(25_000)).status === 200) await turn();
  expect(await publish(25_000)).toMatchObject(refused);
  slow.write(Buffer.alloc(120_000));
  const [answer] = await once(slow, "data");
  expect(String(answer)).toMatch(/^HTTP\/1.1 503 [^]*retry-after: 1[^]*retry later/);
  slow.destroy();
  while ((await publish(60_000)).status !== 200) await turn();
});

test("a body of unknown length takes room as it arrives", async () => {
  const { ask } = await createTestServer({ requestBodyBytes: 1000 });
  const chunked = (bytes: number) =>
    ask("POST", "/v2/publish/https://example.com", {
      headers: { "transfer-encoding": "chunked" },
      body: Buffer.alloc(bytes),
    });
  expect((await chunked(900)).status).toBe(200);
  expect(await chunked(1001)).toMatchObject(refused);
  expect((await chunked(900)).status).toBe(200);
});

test("large bodies that break off or exceed the limit release their room", async () => {
  const server = await createTestServer({ requestBodyBytes: 12 * mebi });
  const port = await listen(server);
  const publish = (bytes: number) =>
    server.ask("POST", "/v2/publish/https://example.com", { body: Buffer.alloc(bytes) });
  const broken = await unfinished(port, 8 * mebi);
  broken.write(Buffer.alloc(5 * mebi));
  while ((await publish(6 * mebi)).status === 200) await turn();
  broken.destroy();
  while ((await publish(8 * mebi)).status !== 200) await turn();

  const chunk = `100000\r\n${"x".repeat(mebi)}\r\n`;
  const head = headOf("/v2/publish/https://example.com", "Transfer-Encoding: chunked");
  expect(parseReply(await send(port, head + chunk.repeat(11))).status).toBe(413);
  while ((await publish(8 * mebi)).status !== 200) await turn();
});

test.each([
  ["on the fast path", "/v2/publish/https://example.com"],
  ["in the framework", "/v2/enqueue/q/https://example.com"],
])("a request that breaks off %s while its token is looked up takes no room", async (_way, path) => {
  const asked = Promise.withResolvers<void>();
  const held = Promise.withResolvers<void>();
  const slow = (store: Store): Store => ({
    ...store,
    read: {
      ...store.read,
      accountByToken: async (tokenHash) => {
        asked.resolve();
        await held.promise;
        return store.read.accountByToken(tokenHash);
      },
    },
  });
  const server = await createTestServer({ requestBodyBytes: 1000, wrap: slow });
  const port = await listen(server);
  const arrived = once(server.api.server, "connection");
  const socket = await unfinished(port, 900, path);
  const [accepted] = await arrived;
  await asked.promise;
  socket.destroy();
  for (let turns = 0; turns < 10; turns++) await turn();
  held.resolve();
  while (!accepted.closed) await turn();
  expect(
    (await server.ask("POST", "/v2/publish/https://example.com", { body: Buffer.alloc(900) })).status,
  ).toBe(200);
});

/** Publishes a chunked body with `count` chunks of `size` bytes over its own connection. */
async function inChunks(port: number, of: { size: number; count: number; path?: string }): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  socket.on("error", () => undefined);
  await once(socket, "connect");
  const { size, count, path = "/v2/publish/https://example.com" } = of;
  socket.write(headOf(path, "Transfer-Encoding: chunked"));
  const chunk = `${size.toString(16)}\r\n${"x".repeat(size)}\r\n`;
  for (let left = count; left > 0 && !socket.destroyed; left -= 1_000) {
    if (!socket.write(chunk.repeat(Math.min(left, 1_000))))
      await Promise.race([once(socket, "drain"), once(socket, "close")]);
  }
  return socket;
}

test.each([
  [1, 5_000],
  [100, 3_000],
  [5_000, 30],
  [20_000, 10],
  [1, 1],
])("a body in chunks of %d bytes arrives complete, %d of them", async (size, count) => {
  const server = await createTestServer();
  const socket = await inChunks(await listen(server), { size, count });
  socket.write("0\r\n\r\n");
  const [answer] = await once(socket, "data");
  expect(String(answer)).toMatch(/^HTTP\/1.1 200 /);
  expect(Buffer.from(server.delivery().message.body).toString()).toBe("x".repeat(size * count));
});

test("chunks of all sizes keep their order", async () => {
  const server = await createTestServer();
  const pieces = [1, 20_000, 3, 4_095, 1, 16_384, 17, 16_383, 2].map((size, at) => String(at).repeat(size));
  const path = "/v2/publish/https://example.com";
  const head = headOf(path, "Connection: close", "Transfer-Encoding: chunked");
  const chunks = pieces.map((text) => `${text.length.toString(16)}\r\n${text}\r\n`);
  expect(parseReply(await send(await listen(server), `${head}${chunks.join("")}0\r\n\r\n`)).status).toBe(200);
  expect(Buffer.from(server.delivery().message.body).toString()).toBe(pieces.join(""));
});

test("many bodies in tiny chunks are refused before they take more memory than was sent", async () => {
  const server = await createTestServer();
  const port = await listen(server);
  const { body: source } = await server.ask("POST", "/v2/sources", {
    body: '{"destination":"https://e.example"}',
  });
  const paths = ["/v2/publish/https://example.com", new URL(source.url).pathname];
  for (const path of paths) {
    const answer = Promise.withResolvers<string>();
    const socket = await inChunks(port, { size: 2, count: 5_000, path });
    socket.once("data", (data) => answer.resolve(String(data)));
    const more = "2\r\nxx\r\n".repeat(6_000);
    socket.write(more);
    expect(await answer.promise).toMatch(/^HTTP\/1.1 400 [^]*comes in chunks of a few bytes/);
  }
});
