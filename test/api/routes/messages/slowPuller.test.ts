import { once } from "node:events";
import { connect } from "node:net";
import type { Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { alarm } from "../../../../src/engine/clock/clock.ts";
import { second } from "../../../../src/engine/core/values/time.ts";
import { createTestServer, otherToken, token } from "../../testServer.ts";
import { listen } from "../../wire.ts";

const mebi = 1024 * 1024;
const origin = "https://worker.internal";

/** Pulls, and reads nothing of the response. */
async function pullUnread(port: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  await once(socket, "connect");
  socket.pause();
  const body = JSON.stringify({ origin, wait: "1s" });
  socket.write(
    `POST /v2/pull HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  return socket;
}

test("a puller that reads slowly has time by the length of its response, and then loses it", async () => {
  /** The timers of 30 s and those that follow them. The test ends them. */
  const timers: { after: number; wake(): void }[] = [];
  const server = await createTestServer({
    alarm: (after, wake) => {
      // A request has 14 s, and one that waits for 1 s has one more.
      if (after <= 15 * second) return alarm(after, wake);
      const timer = { after, wake };
      timers.push(timer);
      return () => void timers.splice(timers.indexOf(timer), 1);
    },
  });
  await server.ask("PUT", "/v2/pulled", { body: JSON.stringify({ origin }) });
  await server.ask("POST", `/v2/publish/${origin}`, { body: Buffer.alloc(9 * mebi, "a") });
  const port = await listen(server);
  await server.store.execute("claim", { limit: 10 });
  await pullUnread(port);
  const timer = async () => {
    await expect.poll(() => timers.length).toBe(1);
    return timers[0] ?? { after: 0, wake: () => undefined };
  };
  const count = async (state: string) =>
    (await server.ask("GET", `/v2/messages?state=${state}`)).body.messages.length as number;
  const first = await timer();
  expect(first.after).toBe(30 * second);
  timers.length = 0;
  first.wake();
  const rest = await timer();
  // 12 MiB of base64, with a second for each 64 KiB.
  expect(rest.after).toBeGreaterThan(192 * second);
  expect(rest.after).toBeLessThan(195 * second);
  expect(await count("delivering")).toBe(1);
  rest.wake();
  await expect.poll(() => count("pending")).toBe(1);
});

test("a puller that reads none of its long responses gets no more attempts, and others do", async () => {
  const server = await createTestServer({ longResponseBytes: 20 * mebi });
  const ask = (body: object, more: { token?: string } = {}) =>
    server.ask("POST", "/v2/pull", { body: JSON.stringify({ origin, wait: "0s", ...body }), ...more });
  for (const account of [token, otherToken])
    await server.ask("PUT", "/v2/pulled", { token: account, body: JSON.stringify({ origin }) });
  for (let at = 0; at < 3; at++)
    await server.ask("POST", `/v2/publish/${origin}`, { body: Buffer.alloc(9 * mebi, "a") });
  await server.ask("POST", `/v2/publish/${origin}`, { token: otherToken });
  await server.store.execute("claim", { limit: 10 });
  const port = await listen(server);
  const sockets = await Promise.all([0, 1].map(() => pullUnread(port)));
  // Each response has 12 MiB of base64.
  await expect.poll(() => ask({})).toMatchObject({ status: 503, body: { code: "busy" } });
  expect((await ask({}, { token: otherToken })).body.attempts).toHaveLength(1);
  for (const socket of sockets) socket.destroy();
  const pullAgain = async () => {
    await server.store.execute("claim", { limit: 10 });
    return (await ask({})).body.attempts?.length;
  };
  await expect.poll(pullAgain).toBe(1);
});
