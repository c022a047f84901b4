import { once } from "node:events";
import { connect } from "node:net";
import type { Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { house, token } from "./house.ts";
import { listen } from "./wire.ts";

/** A publish whose body is announced, and begun, but never ends. */
async function unfinished(port: number, length: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  await once(socket, "connect");
  socket.write(
    `POST /v2/publish/https://example.com HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Length: ${length}\r\n\r\nbegun`,
  );
  return socket;
}

/** Lets the sockets have their say; what is injected never passes through the event loop. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const refused = { status: 503, body: { error: expect.stringContaining("ask again") } };

test("bodies that find no room are refused with 503 and Retry-After, and there is room again when others end or break off", async () => {
  const home = await house({ intakeBytes: 1000 });
  const { ask } = home;
  const port = await listen(home);
  const publish = (bytes: number) => ask("POST", "/v2/publish/https://example.com", { body: Buffer.alloc(bytes) });

  expect((await publish(900)).status).toBe(200);
  const slow = await unfinished(port, 900);
  while ((await publish(200)).status === 200) await turn();
  expect(await publish(200)).toMatchObject({ ...refused, headers: { "retry-after": "1" } });
  // Whoever sends nothing, or little, still gets in.
  expect((await ask("GET", "/v2/dlq")).status).toBe(200);
  expect((await publish(90)).status).toBe(200);

  slow.destroy();
  while ((await publish(900)).status !== 200) await turn();
});

test("large bodies that are announced take no room before they arrive", async () => {
  const home = await house({ intakeBytes: 100_000 });
  const port = await listen(home);
  const waiting = await Promise.all([1, 2, 3, 4, 5, 6].map(() => unfinished(port, 8 * 1024 * 1024)));
  for (let turns = 0; turns < 20; turns++) await turn();
  expect((await home.ask("POST", "/v2/publish/https://example.com", { body: Buffer.alloc(90_000) })).status).toBe(200);
  expect(waiting.every((socket) => !socket.destroyed)).toBe(true);
});

test("large bodies are refused in the middle when there is no more room, and give back what they took", async () => {
  const home = await house({ intakeBytes: 100_000 });
  const publish = (bytes: number) => home.ask("POST", "/v2/publish/https://example.com", { body: Buffer.alloc(bytes) });
  const slow = await unfinished(await listen(home), 8 * 1024 * 1024);
  slow.write(Buffer.alloc(90_000));
  while ((await publish(20_000)).status === 200) await turn();
  expect(await publish(20_000)).toMatchObject(refused);
  slow.write(Buffer.alloc(20_000));
  const [answer] = await once(slow, "data");
  expect(String(answer)).toMatch(/^HTTP\/1.1 503 [^]*retry-after: 1[^]*ask again/);
  slow.destroy();
  while ((await publish(60_000)).status !== 200) await turn();
});

test("a body of unknown length takes as much room as has arrived", async () => {
  const { ask } = await house({ intakeBytes: 1000 });
  const chunked = (bytes: number) =>
    ask("POST", "/v2/publish/https://example.com", { headers: { "transfer-encoding": "chunked" }, body: Buffer.alloc(bytes) });
  expect((await chunked(900)).status).toBe(200);
  expect(await chunked(1001)).toMatchObject(refused);
  expect((await chunked(900)).status).toBe(200);
});
