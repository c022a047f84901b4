import { once } from "node:events";
import { connect } from "node:net";
import type { Socket } from "node:net";
import { PassThrough } from "node:stream";
import { request } from "undici";
import { expect, onTestFinished, test } from "vitest";
import { RefusedBodies } from "../../../src/api/route/refusedBodies.ts";
import { limits } from "../../../src/engine/core/values/limits.ts";
import { createTestServer, token } from "../testServer.ts";
import { listen } from "../wire.ts";

const path = "/v2/publish/https://example.com";
const tooLarge = 20_000_000;

type Head = { length?: number; bearer?: string | null; more?: readonly string[] };

const formatHead = ({ length = tooLarge, bearer = token, more = [] }: Head): string =>
  [
    `POST ${path} HTTP/1.1`,
    "Host: x",
    ...(bearer === null ? [] : [`Authorization: Bearer ${bearer}`]),
    `Content-Length: ${length}`,
    ...more,
    "",
    "",
  ].join("\r\n");

/** Opens a connection and sends a head. `errors` are those of the connection. */
async function begin(port: number, head: Head) {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  const errors: unknown[] = [];
  socket.on("error", (error) => errors.push(error));
  await once(socket, "connect");
  socket.write(formatHead(head));
  return { socket, errors };
}

async function readAll(socket: Socket): Promise<string> {
  const received: Buffer[] = [];
  for await (const bytes of socket) received.push(bytes as Buffer);
  return String(Buffer.concat(received));
}

const servers = { "the fast path": true, "the framework": false };

for (const [name, fastPath] of Object.entries(servers))
  test(`a client that reads after it has written everything gets the refusal, on ${name}`, async () => {
    const port = await listen(await createTestServer({ fastPath }));
    for (const [bearer, length, status] of [
      [token, tooLarge, 413],
      [null, 900_000, 401],
      ["wrong", 900_000, 401],
    ] as const) {
      const { socket, errors } = await begin(port, { bearer, length });
      await new Promise((resolve) => socket.write(Buffer.alloc(length), resolve));
      const reply = await readAll(socket);
      expect(reply).toMatch(new RegExp(`^HTTP/1.1 ${status} [^]*connection: close\r\n`, "i"));
      expect(errors).toEqual([]);
    }
  });

test("published clients of HTTP get the refusal of a body above the limit", async () => {
  const port = await listen(await createTestServer());
  const url = `http://127.0.0.1:${port}${path}`;
  const sent = {
    method: "POST",
    headers: { Authorization: `Bearer ${token}` },
    body: Buffer.alloc(tooLarge),
  } as const;
  for (let round = 0; round < 5; round++) {
    expect((await fetch(url, sent)).status).toBe(413);
    const { statusCode, body } = await request(url, sent);
    await body.dump();
    expect(statusCode).toBe(413);
  }
});

test("the body of a sender that waits for 100 Continue is not read", async () => {
  const port = await listen(await createTestServer());
  const { socket } = await begin(port, { more: ["Expect: 100-continue"] });
  const reply = await readAll(socket);
  expect(reply).toMatch(/^HTTP\/1.1 413 [^]*connection: close\r\n/i);
  expect(reply).not.toContain("100 Continue");
});

for (const [name, fastPath] of Object.entries(servers))
  test(`a client with a valid token is disconnected after twice the limit, on ${name}`, async () => {
    // The alarm would end it after 2 s.
    const server = await createTestServer({ fastPath, alarm: () => () => undefined });
    const port = await listen(server);
    const arrived: Socket[] = [];
    server.api.server.on("connection", (socket: Socket) => arrived.push(socket));
    const most = 2 * limits.messageBytes;
    const head = { length: 2 * most };
    const { socket } = await begin(port, head);
    socket.allowHalfOpen = true;
    socket.resume().write(Buffer.alloc(most - 100_000));
    const sent = formatHead(head).length + most - 100_000;
    await expect.poll(() => arrived[0]?.bytesRead).toBe(sent);
    expect(arrived[0]?.destroyed).toBe(false);
    socket.write(Buffer.alloc(200_000));
    await expect.poll(() => arrived[0]?.destroyed).toBe(true);
  });

test("a client that sends more than the limit for strangers is disconnected", async () => {
  const port = await listen(await createTestServer());
  const { socket } = await begin(port, { bearer: null });
  const closed = new Promise((resolve) => socket.once("close", resolve));
  socket.resume().write(Buffer.alloc(8 * 1024 * 1024));
  await closed;
  expect(socket.destroyed).toBe(true);
});

test("clients that trickle or never end are closed after 2 s, and at most 100 are read at once", async () => {
  const alarms = new Set<() => void>();
  const server = await createTestServer({
    // The other alarms limit the time of a request.
    alarm: (after, wake) => {
      if (after === 2_000) alarms.add(wake);
      return () => void alarms.delete(wake);
    },
  });
  const port = await listen(server);
  const connections = (): Promise<number> =>
    new Promise((resolve) => server.api.server.getConnections((_error, count) => resolve(count)));
  const sockets: Socket[] = [];
  for (let number = 0; number < 200; number++) {
    const { socket } = await begin(port, {});
    // The client keeps its side open after the server has ended the other.
    socket.allowHalfOpen = true;
    socket.resume().write("a");
    sockets.push(socket);
  }
  await expect.poll(connections).toBe(100);
  for (const socket of sockets) if (!socket.destroyed) socket.write("b");
  expect(alarms.size).toBe(100);
  for (const wake of alarms) wake();
  await expect.poll(connections).toBe(0);
});

test("100 strangers that never end keep no sender and no new stranger from its refusal", async () => {
  const port = await listen(await createTestServer({ alarm: () => () => undefined }));
  for (let number = 0; number < 100; number++) {
    const { socket } = await begin(port, { bearer: null });
    socket.allowHalfOpen = true;
    socket.resume().write("a");
    await once(socket, "end");
  }
  for (const [bearer, length, status] of [
    [token, tooLarge, / 413 /],
    // More than 100 strangers in a second get 429.
    [null, 900_000, / 4(01|29) /],
  ] as const) {
    const { socket, errors } = await begin(port, { bearer, length });
    await new Promise((resolve) => socket.write(Buffer.alloc(length), resolve));
    expect(await readAll(socket)).toMatch(status);
    expect(errors).toEqual([]);
  }
});

test("of the connections of strangers that are read, one address gives way to another", async () => {
  const bodies = new RefusedBodies(() => () => undefined);
  const ended: string[] = [];
  const connectFrom = (remoteAddress: string, sender: string | null = null): void => {
    const socket = Object.assign(new PassThrough(), { remoteAddress }) as unknown as Socket;
    const end = (): void => void ended.push(sender ?? remoteAddress);
    expect(bodies.drop({ socket, sender, maxBytes: 1, end })).toBe(true);
  };
  connectFrom("10.0.0.1");
  for (let number = 0; number < 100; number++) connectFrom("10.0.0.2");
  connectFrom("10.0.0.3");
  for (let number = 0; number < 101; number++) connectFrom("10.0.0.4", "acme");
  expect(ended).toEqual(["10.0.0.2", "10.0.0.2", "acme"]);
  bodies.close();
  expect(ended).toHaveLength(3 + 200);
});

test("a server that stops closes them at once", async () => {
  const server = await createTestServer({ alarm: () => () => undefined });
  const port = await listen(server);
  const { socket } = await begin(port, {});
  socket.allowHalfOpen = true;
  socket.resume();
  await once(socket, "end");
  await server.api.close();
  expect(server.api.server.listening).toBe(false);
});
