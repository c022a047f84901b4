import { hash } from "node:crypto";
import { describe, expect, test } from "vitest";
import type { RunPart } from "../../../src/engine/core/model/runPost.ts";
import type { ResponseRoom } from "../../../src/engine/delivery/http/bodyBytes.ts";
import {
  call,
  makeDelivery,
  httpDestination,
  createTestDeliver,
  rawDestination,
} from "./http/destination.ts";

const part: RunPart = {
  run: "run_1",
  runId: "wfr_1",
  createdAt: 1_800_000_000_000,
  kind: "step",
  stepKey: "i",
  position: 0,
  size: 2,
};

describe("a call to the endpoint of a run", () => {
  const headersOf = async (changes: Parameters<typeof call>[1]): Promise<Record<string, unknown>> => {
    let seen: Record<string, unknown> = {};
    const port = await httpDestination((incoming, response) => {
      seen = incoming.headers;
      response.end();
    });
    await call(`http://127.0.0.1:${port}/`, changes);
    return seen;
  };

  test("names the run with both prefixes if the workflow was started with Svc- headers", async () => {
    const headers = [
      ["Svc-Workflow-Sdk-Version", "1"],
      ["Svc-Label", "a"],
      ["Svc-Mine", "b"],
    ] as const;
    const seen = await headersOf({ brand: "svc", headers, run: part });
    for (const prefix of ["svc", "upstash"]) {
      expect(seen).toMatchObject({
        [`${prefix}-workflow-runid`]: "wfr_1",
        [`${prefix}-workflow-createdat`]: "1800000000000",
        [`${prefix}-workflow-sdk-version`]: "1",
        [`${prefix}-label`]: "a",
        [`${prefix}-message-id`]: expect.any(String),
        [`${prefix}-signature`]: expect.any(String),
      });
    }
    expect(seen["upstash-mine"]).toBeUndefined();
  });

  test("has only Upstash- headers if the workflow was started with those, and none twice", async () => {
    const headers = [["Upstash-Workflow-Sdk-Version", "1"]] as const;
    const seen = await headersOf({ brand: "upstash", headers, run: part });
    expect(Object.keys(seen).filter((name) => name.startsWith("svc-"))).toEqual([]);
    const both = [["Svc-Workflow-Sdk-Version", "1"], ...headers] as const;
    expect(
      (await headersOf({ brand: "svc", headers: both, run: part }))["upstash-workflow-sdk-version"],
    ).toBe("1");
  });

  test("to a third party contains nothing about the run", async () => {
    const seen = await headersOf({ brand: "svc", run: { ...part, kind: "call" } });
    expect(Object.keys(seen).filter((name) => /workflow|^upstash-/.test(name))).toEqual([]);
  });
});

describe("the response of a third party", () => {
  const answering = (size: number): Promise<number> =>
    httpDestination((_incoming, response) => response.end("x".repeat(size)));

  test("is complete up to the size of a message, and an error if it is larger", async () => {
    const run = { ...part, kind: "call" as const };
    const whole = await call(`http://127.0.0.1:${await answering(10 * 1024 * 1024)}/`, { run });
    expect([whole.status, whole.body.byteLength]).toEqual([200, 10 * 1024 * 1024]);
    const cut = await call(`http://127.0.0.1:${await answering(10 * 1024 * 1024 + 1)}/`, { run });
    expect(cut).toMatchObject({ status: null, error: "the response exceeds the limit of 10 MiB" });
  });
});

describe("a response that a callback reports", () => {
  const mebibyte = 1024 * 1024;
  const most = 7.5 * mebibyte;
  const answering = (size: number, status = 500): Promise<number> =>
    httpDestination((_incoming, response) => response.writeHead(status).end("x".repeat(size)));
  const told = {
    url: "https://f.example/",
    method: "POST" as const,
    headers: [],
    retries: null,
    retryDelay: null,
    timeout: null,
  };
  const failureCallback = { ...told, flowControl: null, callback: null, failureCallback: null };
  const plain = { callback: null, failureCallback: null };
  const step = { ...plain, run: part };

  test.each([
    [
      "of a failure, with a failure callback",
      { changes: { ...plain, failureCallback }, status: 500, size: most },
    ],
    ["of a failure, of a run", { changes: step, status: 500, size: most }],
    [
      "of the result of a call, of a run",
      { changes: { ...plain, run: { ...part, kind: "result" as const } }, status: 500, size: most },
    ],
    ["of a success, with a callback", { changes: {}, status: 200, size: most }],
    ["of a failure, without a callback", { changes: plain, status: 500, size: 1_000 }],
    [
      "of a success that is kept, with only a failure callback",
      { changes: { ...plain, failureCallback, keepResponse: true }, status: 200, size: 1_000 },
    ],
    [
      "of a failure callback itself",
      { changes: { ...plain, run: { ...part, kind: "failure" as const } }, status: 500, size: 1_000 },
    ],
  ])("is read up to its limit: %s", async (_, { changes, status, size }) => {
    const whole = await call(`http://127.0.0.1:${await answering(size, status)}/`, changes);
    expect([whole.status, whole.body.byteLength, whole.cut, whole.error]).toEqual([
      status,
      size,
      undefined,
      null,
    ]);
    const cut = await call(`http://127.0.0.1:${await answering(size + 1, status)}/`, changes);
    expect([cut.status, cut.body.byteLength, cut.cut, cut.error]).toEqual([status, size, true, null]);
  });

  test("states how many bytes are kept, and has the hash of all", async () => {
    const outcome = await call(`http://127.0.0.1:${await answering(2_000)}/`, step);
    expect(outcome).toMatchObject({ keptBytes: 1_000, digest: hash("sha256", "x".repeat(2_000)) });
    expect(outcome).not.toHaveProperty("cut");
    expect(await call(`http://127.0.0.1:${await answering(1_000)}/`, step)).not.toHaveProperty("keptBytes");
  });

  /** Returns a room that records what is requested of it. */
  function noting(grants: boolean): { room: ResponseRoom; taken: () => number; asked: string[] } {
    let taken = 0;
    const asked: string[] = [];
    const add = (bytes: number): void => void (taken += bytes);
    const take = (bytes: number): boolean => {
      asked.push("take");
      if (grants) add(bytes);
      return grants;
    };
    const wait = (bytes: number, then: () => void): (() => void) => {
      asked.push("wait");
      add(bytes);
      then();
      return () => undefined;
    };
    return {
      room: {
        add,
        take,
        wait,
        watch: () => undefined,
        shrinkTo: (bytes) => void (taken = Math.min(taken, bytes)),
      },
      taken: () => taken,
      asked,
    };
  }

  test("is cut at the usual limit if there is no memory for more", async () => {
    const { room, taken, asked } = noting(false);
    const url = `http://127.0.0.1:${await answering(200_000)}/`;
    const outcome = await createTestDeliver()(makeDelivery(url, step), room).outcome;
    expect([outcome.status, outcome.body.byteLength, outcome.cut, taken()]).toEqual([
      500,
      1_000,
      true,
      1_000,
    ]);
    expect(asked).toEqual(["take"]);
    const none = await createTestDeliver()(
      makeDelivery(`http://127.0.0.1:${await answering(1_000)}/`, step),
      room,
    ).outcome;
    expect([none.body.byteLength, none.cut, asked.length]).toEqual([1_000, undefined, 1]);
  });

  test("takes memory for all of it, and holds it until its room is closed", async () => {
    const told = noting(true);
    const url = `http://127.0.0.1:${await answering(200_000)}/`;
    await createTestDeliver()(makeDelivery(url, step), told.room).outcome;
    expect([told.taken(), told.asked]).toEqual([200_000, ["take"]]);
    const called = noting(false);
    const run = { ...part, kind: "call" as const };
    const outcome = await createTestDeliver()(makeDelivery(url, { ...plain, run }), called.room).outcome;
    expect([outcome.body.byteLength, called.taken(), called.asked]).toEqual([200_000, 200_000, ["wait"]]);
  });

  test("that times out is cut if more has arrived than is kept", async () => {
    const port = await httpDestination((_incoming, response) =>
      response.writeHead(500).write("x".repeat(1_001)),
    );
    const outcome = await call(`http://127.0.0.1:${port}/`, { ...step, timeout: 300 });
    expect([outcome.status, outcome.body.byteLength, outcome.cut, outcome.error]).toEqual([
      500,
      1_001,
      true,
      null,
    ]);
    const short = await httpDestination((_incoming, response) =>
      response.writeHead(500).write("x".repeat(1_000)),
    );
    expect(await call(`http://127.0.0.1:${short}/`, { ...step, timeout: 300 })).toMatchObject({
      status: null,
      error: "timed out after 300 ms",
    });
  });

  test("is marked as cut if it has more than 100 headers", async () => {
    const many = (count: number): Promise<number> =>
      httpDestination((_incoming, response) => {
        for (let n = 0; n < count; n++) response.setHeader(`x-${n}`, "1");
        response.sendDate = false;
        response.writeHead(500, { connection: "close", "content-length": "0" }).end();
      });
    const few = await call(`http://127.0.0.1:${await many(98)}/`);
    const more = await call(`http://127.0.0.1:${await many(99)}/`);
    expect([few.headers.length, few.cut]).toEqual([100, undefined]);
    expect([more.headers.length, more.cut]).toEqual([100, true]);
  });
});

test("a success is read and marked if the log keeps the response", async () => {
  const port = await httpDestination((_incoming, response) => response.end("made"));
  const url = `http://127.0.0.1:${port}/`;
  const kept = await call(url, { callback: null, keepResponse: true });
  expect(kept).toMatchObject({ status: 200, keepsInLog: true, body: new Uint8Array(Buffer.from("made")) });
  const plain = await call(url, { callback: null });
  expect([plain.body.byteLength, plain.headers, plain.keepsInLog]).toEqual([0, [], undefined]);
  expect(await call(url)).not.toHaveProperty("keepsInLog");
});

describe("a reused connection that ends without a response", () => {
  /** Sends two messages over one connection, which ends at the second request. Returns what arrived. */
  const send = async (kind: RunPart["kind"]) => {
    const requests: number[] = [];
    let connections = 0;
    const port = await rawDestination((socket) => {
      const number = ++connections;
      let count = 0;
      socket.on("data", () => {
        requests.push(number);
        if (number === 1 && ++count === 2) return void socket.destroy();
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
      });
    });
    const deliver = createTestDeliver();
    const url = `http://127.0.0.1:${port}/`;
    await deliver(makeDelivery(url)).outcome;
    for (let look = 0; look < 3; look++) await new Promise(setImmediate);
    return { requests, outcome: await deliver(makeDelivery(url, { run: { ...part, kind } })).outcome };
  };

  test.each(["step", "result"] as const)("ends an attempt with the %s of a run", async (kind) => {
    const { requests, outcome } = await send(kind);
    expect(requests).toEqual([1, 1]);
    expect(outcome).toMatchObject({
      ...{ status: null, unanswered: true },
      error: "connection lost before the response was complete",
    });
  });

  test.each(["call", "failure"] as const)("resends the %s of a run", async (kind) => {
    const { requests, outcome } = await send(kind);
    expect(requests).toEqual([1, 1, 2]);
    expect(outcome).toMatchObject({ status: 200 });
    expect(outcome).not.toHaveProperty("unanswered");
  });
});
