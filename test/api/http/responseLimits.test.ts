import { once } from "node:events";
import { connect } from "node:net";
import type { Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { createTestServer, otherToken, token } from "../testServer.ts";
import { listen } from "../wire.ts";

const mebi = 1024 * 1024;

/** Requests a page and reads nothing of it. */
async function unread(port: number, path: string): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  await once(socket, "connect");
  socket.pause();
  socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n\r\n`);
  return socket;
}

/** Waits for events of the sockets. Injected requests never pass through the event loop. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("an account that reads none of its long responses gets 503, and others do not", async () => {
  const server = await createTestServer({ longResponseBytes: 20 * mebi });
  const { ask } = server;
  await ask("POST", "/v2/publish/https://e.example", {
    headers: { "svc-retries": "0" },
    body: Buffer.alloc(8 * mebi, "a"),
  });
  await ask("POST", "/v2/publish/https://e.example", {
    headers: { "svc-retries": "0" },
    body: Buffer.alloc(8 * mebi, "b"),
  });
  for (const delivery of server.deliveries.splice(0)) await server.settle(delivery, { status: 500 });
  const port = await listen(server);
  const status = async (more: { token?: string } = {}): Promise<number> =>
    (await ask("GET", "/v2/queues", more)).status;

  const sockets = [await unread(port, "/v2/dlq"), await unread(port, "/v2/dlq")];
  while ((await status()) === 200) await turn();
  expect(await ask("GET", "/v2/dlq")).toMatchObject({
    status: 503,
    headers: { "retry-after": "1" },
    body: { error: expect.stringContaining("read those in flight") },
  });
  // A request that changes something has been done, so it is answered.
  expect((await ask("POST", "/v2/publish/https://e.example")).status).toBe(200);
  expect(await status({ token: otherToken })).toBe(200);

  for (const socket of sockets) socket.destroy();
  while ((await status()) === 503) await turn();
  expect((await ask("GET", "/v2/dlq")).status).toBe(200);
});

test("few of an account's many long responses are made at a time, within its room", async () => {
  let making = 0;
  let most = 0;
  let made = 0;
  const allHaveAsked = Promise.withResolvers<void>();
  const server = await createTestServer({
    longResponseBytes: 20 * mebi,
    wrap: (store) => ({
      ...store,
      read: {
        ...store.read,
        deadLetters: async (...asked) => {
          most = Math.max(most, ++making);
          made++;
          await allHaveAsked.promise;
          making--;
          return store.read.deadLetters(...asked);
        },
      },
    }),
  });
  for (const letter of ["a", "b"])
    await server.ask("POST", "/v2/publish/https://e.example", {
      headers: { "svc-retries": "0" },
      body: Buffer.alloc(8 * mebi, letter),
    });
  for (const delivery of server.deliveries.splice(0)) await server.settle(delivery, { status: 500 });
  const port = await listen(server);
  const sockets = await Promise.all(Array.from({ length: 40 }, () => unread(port, "/v2/dlq")));
  for (let turns = 0; turns < 100; turns++) await turn();
  allHaveAsked.resolve();
  while (server.lines.filter(({ status }) => status === 503).length < 30) await turn();
  expect(most).toBeLessThanOrEqual(4);
  expect(made).toBeLessThanOrEqual(10);
  expect((await server.ask("POST", "/v2/publish/https://e.example")).status).toBe(200);

  for (const socket of sockets) socket.destroy();
  while ((await server.ask("GET", "/v2/queues")).status === 503) await turn();
  const answers = await Promise.all(Array.from({ length: 20 }, () => server.ask("GET", "/v2/queues")));
  expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 20 }, () => 200));
});
