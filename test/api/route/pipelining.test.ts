import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { expect, onTestFinished, test, vi } from "vitest";
import { PacedSocket } from "../../../src/api/route/pipelining.ts";
import { LongWork } from "../../../src/engine/core/node/longWork.ts";
import { second } from "../../../src/engine/core/values/time.ts";
import { createTestServer, token } from "../testServer.ts";
import type { TestServer } from "../testServer.ts";
import { listen, send } from "../wire.ts";

const asked = (line: string, more: readonly string[] = []): string =>
  [`${line} HTTP/1.1`, "Host: x", `Authorization: Bearer ${token}`, ...more, "", ""].join("\r\n");
const pause = asked("POST /v2/queues/q/pause");
const last = asked("POST /v2/queues/q/pause", ["Connection: close"]);
const plain = `${asked("POST /v2/publish/https://e.example/", ["Content-Length: 5"])}plain`;
const chunkedHead = asked("POST /v2/publish/https://e.example/", ["Transfer-Encoding: chunked"]);
const inChunks = `${chunkedHead}5\r\nchunk\r\n0\r\n\r\n`;

const statusesIn = (received: string): number[] =>
  [...received.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));
const bodies = ({ deliveries }: TestServer): string[] =>
  deliveries.map(({ message }) => Buffer.from(message.body).toString());

/** Counts how many commands run at once. With `held`, no command completes before it. */
async function counting(
  held: Promise<unknown> = Promise.resolve(),
): Promise<TestServer & { port: number; most(): number }> {
  let underWay = 0;
  let most = 0;
  const server = await createTestServer({
    wrap: (store) => ({
      ...store,
      execute: (...given) => {
        most = Math.max(most, ++underWay);
        return held.then(() => store.execute(...given)).finally(() => underWay--);
      },
    }),
  });
  return { ...server, port: await listen(server), most: () => most };
}

function gate(): [held: Promise<void>, release: () => void] {
  let release = (): void => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  return [held, release];
}

test("requests in one piece are answered in order, and only one of a connection runs at a time", async () => {
  const server = await counting();
  const received = await send(server.port, pause.repeat(500) + inChunks + pause.repeat(500) + plain + last);
  expect(statusesIn(received)).toEqual(Array(1003).fill(200));
  expect([bodies(server), server.most()]).toEqual([["chunk", "plain"], 1]);
  expect(received.split("\r\n\r\n")[501]).toMatch(/^\{"messageId":/);
});

test("all requests are answered if the client half-closes the connection at once", async () => {
  const [held, release] = gate();
  const server = await counting(held);
  const socket = connect({ port: server.port, host: "127.0.0.1", allowHalfOpen: true });
  onTestFinished(() => void socket.destroy());
  socket.write(pause);
  await expect.poll(() => server.most()).toBe(1);
  socket.end(pause.repeat(300) + inChunks);
  await new Promise((go) => setTimeout(go, 100));
  release();
  expect(statusesIn(await text(socket))).toEqual(Array(302).fill(200));
  expect(bodies(server)).toEqual(["chunk"]);
});

test("a client that reads no responses is not read from", async () => {
  const server = await counting();
  const socket = connect(server.port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  socket.pause().write(pause.repeat(200_000));
  let before = -1;
  let now = 0;
  while (before !== now) {
    await new Promise((go) => setTimeout(go, 300));
    before = now;
    now = socket.bytesWritten - socket.writableLength;
  }
  // Bytes that the system buffers for both sides.
  expect(socket.writableLength).toBeGreaterThan(4_000_000);
});

test("pieces that end in the middle of bodies do not accumulate in memory", async () => {
  const [held, release] = gate();
  const server = await counting(held);
  const socket = connect({ port: server.port, host: "127.0.0.1", noDelay: true });
  onTestFinished(() => void socket.destroy());
  let begun = 0;
  server.api.server.on("request", () => void begun++);
  const head = asked("POST /v2/queues/q/pause", ["Content-Length: 2"]);
  socket.write(head);
  await expect.poll(() => begun).toBe(1);
  for (let round = 0; round < 50; round++) {
    socket.write(`{}${head}`.repeat(20));
    await new Promise((go) => setTimeout(go, 2));
  }
  expect([server.most(), begun < 70]).toEqual([1, true]);
  release();
  socket.write("{}");
  await expect.poll(() => begun).toBe(1_001);
});

test("the body of an early refused request is not cut into small pieces", async () => {
  const server = await counting();
  const push = vi.spyOn(PacedSocket.prototype, "push");
  onTestFinished(() => push.mockRestore());
  const socket = connect({ port: server.port, host: "127.0.0.1", allowHalfOpen: true });
  onTestFinished(() => void socket.destroy());
  socket.on("error", () => undefined);
  const body = "\r\n\r\n".repeat(250_000);
  socket.write(
    `POST /v2/publish/https://e.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n`,
  );
  const received: string[] = [];
  socket.on("data", (bytes: Buffer) => received.push(bytes.toString("latin1")));
  await expect.poll(() => statusesIn(received.join(""))).toEqual([401]);
  // The body is dropped, and nothing that follows it is answered.
  socket.end(body + last);
  await new Promise((resolve) => socket.once("close", resolve));
  expect(statusesIn(received.join(""))).toEqual([401]);
  expect(push.mock.calls.length).toBeLessThan(2_000);
});

test("bodies arrive byte for byte, even if they are full of head ends", async () => {
  const server = await counting();
  const odd = "\r\n\r\n".repeat(60_000);
  const long = `${asked("POST /v2/publish/https://e.example/", [`Content-Length: ${odd.length}`])}${odd}`;
  const chunk = `${odd.length.toString(16)}\r\n${odd}\r\n`;
  const chunks = `${chunkedHead}${chunk}${chunk}0\r\nX-Trailer: x\r\n\r\n`;
  expect(statusesIn(await send(server.port, long + pause + chunks + plain + last))).toEqual(
    Array(5).fill(200),
  );
  expect(bodies(server)).toEqual([odd, odd + odd, "plain"]);
});

test.each([
  { first: plain, body: "plain" },
  { first: inChunks, body: "chunk" },
])("a publish is answered before malformed bytes behind it are refused: $body", async ({ first, body }) => {
  const server = await counting();
  for (const rest of ["no request\r\n\r\n", asked("CONNECT e.example:443")]) {
    server.deliveries.length = 0;
    const received = await send(server.port, first + rest);
    expect(statusesIn(received)).toEqual([200, rest.startsWith("CONNECT") ? 405 : 400]);
    expect(bodies(server)).toEqual([body]);
  }
});

test("a malformed body is refused at once, after the answers to earlier requests", async () => {
  const server = await counting();
  const broken = inChunks.replace("5\r\n", "odd\r\n");
  expect(statusesIn(await send(server.port, broken))).toEqual([400]);
  expect(statusesIn(await send(server.port, pause + broken))).toEqual([200, 400]);
  expect(bodies(server)).toEqual([]);
});

test.each([
  { by: "nobody", asked: "GET / HTTP/1.1\r\nHost: x\r\n\r\n", statuses: [404, 429] },
  {
    by: "an account, and refused before it is stored",
    asked: plain.replace("https:", "ftp:"),
    statuses: [400],
  },
])(
  "other connections get their turn between the requests of one connection: $by",
  async ({ asked: one, statuses }) => {
    const server = await counting();
    const flood = connect({ port: server.port, host: "127.0.0.1" });
    onTestFinished(() => void flood.destroy());
    // The first request with the token makes the server look it up.
    expect(statusesIn(await send(server.port, last))).toEqual([200]);
    const begun = server.lines.length;
    const answered = (): number => server.lines.length - begun;
    const turns: number[] = [0];
    const count = (): void => {
      turns.push(answered());
      if (answered() < 500 && turns.length < 1_000_000) setImmediate(count);
    };
    let received = "";
    flood.on("data", (bytes: Buffer) => (received += bytes.toString("latin1")));
    flood.write(one.repeat(500));
    count();
    await expect.poll(() => statusesIn(received).length).toBe(500);
    expect([...new Set(statusesIn(received))]).toEqual(statuses);
    const steps = turns.slice(1).map((now, at) => now - (turns[at] ?? 0));
    expect(Math.max(...steps)).toBeLessThanOrEqual(2);
  },
);

test.each([
  {
    name: "chunks of one byte",
    headers: ["Transfer-Encoding: chunked"],
    written: `${"1\r\nx\r\n".repeat(2_000)}0\r\n\r\n`,
    length: 2_000,
    least: 7,
  },
  {
    name: "a length",
    headers: ["Content-Length: 300000"],
    written: "x".repeat(300_000),
    length: 300_000,
    least: 4,
  },
])(
  "a long body with $name is read in turns, and other requests are served in between",
  async ({ headers, written, length, least }) => {
    const waiting: (() => void)[] = [];
    const server = await createTestServer({
      longWork: new LongWork({
        soon: (run) => void waiting.push(run),
        elapsed: () => performance.now() * 1e6,
      }),
    });
    const port = await listen(server);
    const long = send(
      port,
      asked("POST /v2/publish/https://e.example/", [...headers, "Connection: close"]) + written,
    );
    let turns = 0;
    let isOver = false;
    void long.then(() => (isOver = true));
    while (!isOver) {
      expect(statusesIn(await send(port, plain + last))).toEqual([200, 200]);
      turns += waiting.length > 0 ? 1 : 0;
      waiting.splice(0).forEach((run) => run());
    }
    expect(statusesIn(await long)).toEqual([200]);
    expect(turns).toBeGreaterThanOrEqual(least);
    expect(bodies(server).filter((body) => body !== "plain")).toEqual(["x".repeat(length)]);
  },
);

test(
  "a body that arrives byte by byte is read less and less often, and completely",
  { tags: "long" },
  async () => {
    const rests: number[] = [];
    const rings: (() => void)[] = [];
    const server = await createTestServer({
      alarm: (after, ring) => {
        // The alarms of requests that take too long never ring here.
        if (after > second) return () => undefined;
        rests.push(after);
        rings.push(ring);
        return () => undefined;
      },
    });
    const socket = connect(await listen(server), "127.0.0.1").setNoDelay();
    onTestFinished(() => void socket.destroy());
    socket.write(
      asked("POST /v2/enqueue/q/https://e.example/", ["Content-Length: 1000", "Connection: close"]),
    );
    let written = 0;
    let isOver = false;
    const answer = text(socket).finally(() => (isOver = true));
    while (!isOver) {
      if (written < 1_000) socket.write(String(written++ % 10));
      if (written % 30 === 0 || written === 1_000) rings.splice(0).forEach((ring) => ring());
      await new Promise((go) => setTimeout(go, 1));
    }
    expect(statusesIn(await answer)).toEqual([200]);
    expect(bodies(server)).toEqual(["0123456789".repeat(100)]);
    expect(rests.slice(0, 9)).toEqual([10, 20, 40, 80, 160, 320, 640, 1_000, 1_000]);
    expect(rests.length).toBeLessThan(100);
  },
);
