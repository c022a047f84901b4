import { brotliCompressSync, gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import type { Outcome } from "../../../src/engine/core/model/attempt.ts";
import {
  call,
  makeDelivery,
  httpDestination,
  createTestDeliver,
  rawDestination,
  scriptedDestination,
  start,
} from "./http/destination.ts";

const text = ({ body }: Outcome): string => Buffer.from(body).toString("latin1");

describe("the response", () => {
  test("is an outcome with status, headers and body", async () => {
    const port = await httpDestination((_incoming, response) => {
      response.writeHead(503, ["x-b", "1", "X-b", "2", "Retry-After", "7"]).end("busy");
    });
    const outcome = await start()(makeDelivery(`http://127.0.0.1:${port}/`, {}, 3));
    expect(outcome).toMatchObject({
      account: "acc",
      messageId: "msg_1",
      host: `127.0.0.1:${port}`,
      attempt: 3,
      status: 503,
      error: null,
    });
    expect(outcome.headers.slice(0, 3)).toEqual([
      ["X-B", "1"],
      ["X-B", "2"],
      ["Retry-After", "7"],
    ]);
    expect(text(outcome)).toBe("busy");
    expect(Number.isInteger(outcome.took) && outcome.took >= 0).toBe(true);
    const { connect = null, firstByte = null, duration = -1 } = outcome.timing ?? {};
    expect([connect, firstByte, duration].every((time) => Number.isInteger(time))).toBe(true);
    expect((connect ?? 0) + (firstByte ?? 0)).toBeLessThanOrEqual(duration);
    expect((connect ?? 0) + outcome.took).toBe(duration);
  });

  test("that is slow or failed has the times of opening its connection", async () => {
    let status = 503;
    const port = await httpDestination((_incoming, response) => {
      setTimeout(() => response.writeHead(status).end("x"), status === 201 ? 1_050 : 0);
    });
    const deliver = start({ resolve: async () => ["127.0.0.1"] });
    const send = () => deliver(makeDelivery(`http://shop.test:${port}/`));
    const first = await send();
    const { lookup = -1, tcp = -1, ...rest } = first.timing?.opening ?? {};
    expect([lookup, tcp].every((time) => Number.isInteger(time) && time >= 0)).toBe(true);
    expect(rest).toEqual({});
    expect(lookup + tcp).toBeLessThanOrEqual((first.timing?.connect ?? 0) + 2);
    await expect.poll(async () => (await send()).timing?.opening).toBeUndefined();
    const one = (code: number) => {
      status = code;
      return start()(makeDelivery(`http://127.0.0.1:${port}/`));
    };
    expect((await one(200)).timing).not.toHaveProperty("opening");
    const slow = await one(201);
    expect(Object.keys(slow.timing?.opening ?? {})).toEqual(["tcp"]);
  });

  test("that never begins leaves its time open, and so does a connection that is refused", async () => {
    const port = await httpDestination(() => undefined);
    const silent = await call(`http://127.0.0.1:${port}/`, { timeout: 500 });
    expect(silent.timing).toMatchObject({ firstByte: null });
    expect(silent.timing?.connect).not.toBeNull();
    const refused = await call("http://127.0.0.1:1/");
    expect(refused).toMatchObject({ status: null, timing: { connect: null, firstByte: null } });
    expect(refused.timing?.duration).toBe(refused.took);
  });

  test("is not read if it is not needed", async () => {
    const status = { code: 200 };
    const port = await httpDestination((_incoming, response) =>
      response.writeHead(status.code, { "X-A": "1" }).end("body"),
    );
    const unread = { callback: null, reportsOn: null };
    expect(await call(`http://127.0.0.1:${port}/`, unread)).toMatchObject({
      status: 200,
      headers: [],
      body: new Uint8Array(0),
    });
    const told = await call(`http://127.0.0.1:${port}/`, {
      ...unread,
      reportsOn: { kind: "callback", messageId: "msg_0", dlqId: null },
    });
    expect(text(told)).toBe("body");
    status.code = 400;
    expect(text(await call(`http://127.0.0.1:${port}/`, unread))).toBe("body");
  });

  test("is not followed if it redirects", async () => {
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
  ])("is not decompressed: %s", async (coding, packed) => {
    const port = await httpDestination((_incoming, response) =>
      response.writeHead(200, { "Content-Encoding": coding }).end(packed),
    );
    expect(Buffer.from((await call(`http://127.0.0.1:${port}/`)).body)).toEqual(packed);
  });

  test("occupies exactly as much memory as its bytes", async () => {
    const port = await httpDestination((_incoming, response) => response.end("four"));
    const { body } = await call(`http://127.0.0.1:${port}/`);
    expect(body.buffer.byteLength).toBe(4);
  });

  test.each([
    ["no content", { said: "HTTP/1.1 204 No Content\r\n\r\n", status: 204, body: "" }],
    [
      "content where none belongs",
      { said: "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", status: 204, body: "" },
    ],
    [
      "early hints before it",
      {
        said: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        status: 200,
        body: "ok",
      },
    ],
    [
      "chunks and trailers",
      {
        said: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nX-T: 1\r\n\r\n",
        status: 200,
        body: "abc",
      },
    ],
    ["an unknown status", { said: "HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n", status: 799, body: "" }],
    [
      "bytes beyond ASCII in a header",
      { said: "HTTP/1.1 200 \xff\r\nX-A: \xe9\r\nContent-Length: 0\r\n\r\n", status: 200, body: "" },
    ],
  ])("may have %s", async (_case, { said, status, body }) => {
    const port = await scriptedDestination(said);
    const outcome = await call(`http://127.0.0.1:${port}/`);
    expect([outcome.error, outcome.status, text(outcome)]).toEqual([null, status, body]);
  });

  test("may end with the connection", async () => {
    const port = await rawDestination((socket) =>
      socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\n\r\nall of it")),
    );
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
        socket.write(
          "HTTP/1.1 200 OK\r\nContent-Length: " +
            `${length}\r\n\r\n${"x".repeat(Math.min(Number(length), 100_000))}`,
        ),
      );
      socket.on("close", wasCut);
    });
    const outcome = await call(`http://127.0.0.1:${port}/`, { callback: null, keepResponse: true });
    expect([outcome.error, outcome.status, String(outcome.body.length), outcome.cut === true]).toEqual([
      null,
      200,
      kept,
      cut,
    ]);
    if (cut) await cutOff;
  });

  test("without an end is cut even if it is not needed", async () => {
    const port = await httpDestination((_incoming, response) => {
      const timer = setInterval(() => response.write("x".repeat(100)), 1);
      response.on("close", () => clearInterval(timer));
    });
    expect(await call(`http://127.0.0.1:${port}/`, { callback: null })).toMatchObject({
      status: 200,
      error: null,
    });
  });

  test("keeps at most 100 headers", async () => {
    const many = Array.from({ length: 500 }, (_none, at) => `X-${at}: 1\r\n`).join("");
    const port = await scriptedDestination(`HTTP/1.1 200 OK\r\nContent-Length: 0\r\n${many}\r\n`);
    const outcome = await call(`http://127.0.0.1:${port}/`);
    expect([outcome.status, outcome.headers.length, outcome.headers[1]?.[0]]).toEqual([200, 100, "X-0"]);
  });
});

test("a request is signed after pending responses to publishers have been sent", async () => {
  const port = await httpDestination((_incoming, response) => response.end());
  const order: string[] = [];
  const deliver = createTestDeliver({
    newId: (kind) => {
      order.push("signed");
      return kind;
    },
  });
  const { outcome } = deliver(makeDelivery(`http://127.0.0.1:${port}/`));
  // More steps than a response may take until it is sent.
  for (let step = 0; step < 20; step++) await Promise.resolve();
  order.push("answered");
  expect((await outcome).status).toBe(200);
  expect(order).toEqual(["answered", "signed"]);
});

describe("connections", () => {
  test("are reused, carry one request at a time, and do not exceed their limit", async () => {
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
    const outcomes = await Promise.all(
      Array.from({ length: 50 }, () => deliver(makeDelivery(`http://127.0.0.1:${server}/`))),
    );
    expect(outcomes.filter(({ status }) => status !== 200)).toEqual([]);
    expect(opened).toBeLessThanOrEqual(3);
    expect(most).toBeLessThanOrEqual(3);
  });
});
