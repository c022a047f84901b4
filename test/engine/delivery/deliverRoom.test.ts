import { createServer, type RequestListener } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo } from "node:net";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { describe, expect, onTestFinished, test } from "vitest";
import { laneName } from "../../../src/engine/core/admission/capacity.ts";
import type { StoredMessage } from "../../../src/engine/core/model/message.ts";
import { BodyByteBudget } from "../../../src/engine/delivery/http/bodyBytes.ts";
import { certificate, makeDelivery, createTestDeliver, rawDestination } from "./http/destination.ts";

const mebibyte = 1024 * 1024;
const run = {
  run: "run_1",
  runId: "wfr_1",
  createdAt: 0,
  kind: "call",
  stepKey: "c1",
  position: 0,
  size: 0,
} as const;
const toThirdParty: Partial<StoredMessage> = { callback: null, keepResponse: true, run };
const lane = laneName("acc", "shop.test");
const noStop = (): void => undefined;

/** Returns memory of which another response holds everything but the share that is left for any response. */
function fullMemory(total = 256 * 1024): { bytes: BodyByteBudget; giveBack: () => void } {
  const bytes = new BodyByteBudget(total);
  const other = bytes.openRoom(laneName("other", "other.test"));
  other.wait(total, noStop);
  return { bytes, giveBack: () => other.close() };
}

async function destination(
  isSecure: boolean,
  listener: RequestListener,
): Promise<{ url: string; connections: () => number }> {
  let connections = 0;
  if (isSecure) {
    const trusted = getCACertificates("default");
    onTestFinished(() => setDefaultCACertificates(trusted));
    setDefaultCACertificates([certificate.cert]);
  }
  const server = isSecure ? createSecureServer(certificate, listener) : createServer(listener);
  server.on(isSecure ? "secureConnection" : "connection", () => connections++);
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { url: `${isSecure ? "https" : "http"}://shop.test:${port}/`, connections: () => connections };
}

describe.each([
  ["plain, with Content-Length", false, true],
  ["plain, in chunks", false, false],
  ["over TLS, with Content-Length", true, true],
  ["over TLS, in chunks", true, false],
])("a response that finds no memory: %s", (_, isSecure, hasLength) => {
  const body = Buffer.from(Array.from({ length: 4 * mebibyte }, (_none, at) => (at * 31) % 251));

  test("waits with little of it read, then arrives unchanged, and its connection is reused", async () => {
    const { url, connections } = await destination(isSecure, (_incoming, response) => {
      response.writeHead(200, hasLength ? { "Content-Length": body.length } : {}).end(body);
    });
    const { bytes, giveBack } = fullMemory();
    const deliver = createTestDeliver({ resolve: async () => ["127.0.0.1"] });
    const room = bytes.openRoom(lane);
    const { outcome } = deliver(makeDelivery(url, toThirdParty), room);
    await expect.poll(() => bytes.byLane[lane] ?? 0).toBeGreaterThan(16 * 1024);
    // A small amount in any case: what one read of the socket brings, and what TLS has decrypted by then.
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(bytes.byLane[lane]).toBeLessThanOrEqual(256 * 1024);
    giveBack();
    const { status, error, body: got } = await outcome;
    expect([status, error, Buffer.compare(got, body), bytes.byLane[lane]]).toEqual([
      200,
      null,
      0,
      body.length,
    ]);
    room.close();
    expect((await deliver(makeDelivery(url, toThirdParty), bytes.openRoom(lane)).outcome).status).toBe(200);
    expect(connections()).toBe(1);
  });
});

test("a response that waits for memory times out with that reason and releases its memory", async () => {
  const { url } = await destination(
    false,
    (_incoming, response) => void response.end(Buffer.alloc(mebibyte)),
  );
  const { bytes, giveBack } = fullMemory();
  const room = bytes.openRoom(lane);
  const outcome = await createTestDeliver({ resolve: async () => ["127.0.0.1"] })(
    makeDelivery(url, { ...toThirdParty, timeout: 1_000 }),
    room,
  ).outcome;
  expect(outcome).toMatchObject({
    status: null,
    error: "timed out after 1 s while the server had no memory for more of the response",
  });
  expect(bytes.byLane[lane]).toBeUndefined();
  giveBack();
  expect(bytes.free).toBe(256 * 1024);
});

test("a small response never waits", async () => {
  const { url } = await destination(
    false,
    (_incoming, response) => void response.end(Buffer.alloc(16 * 1024)),
  );
  const { bytes } = fullMemory();
  const { body } = await createTestDeliver({ resolve: async () => ["127.0.0.1"] })(
    makeDelivery(url, toThirdParty),
    bytes.openRoom(lane),
  ).outcome;
  expect(body.byteLength).toBe(16 * 1024);
});

test("a call to a third party whose announced length is too large ends before its body is read", async () => {
  const port = await rawDestination((socket) =>
    socket.once("data", () =>
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${10 * mebibyte + 1}\r\n\r\n`),
    ),
  );
  const bytes = new BodyByteBudget(mebibyte);
  const outcome = await createTestDeliver()(
    makeDelivery(`http://127.0.0.1:${port}/`, toThirdParty),
    bytes.openRoom(lane),
  ).outcome;
  expect(outcome).toMatchObject({ status: null, error: "the response exceeds the limit of 10 MiB" });
  expect(bytes.free).toBe(mebibyte);
});
