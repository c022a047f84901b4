import { beforeEach, describe, expect, test } from "vitest";
import type { Outcome } from "../../../../src/engine/core/model/attempt.ts";
import type { makeInput } from "../commandRunner.ts";
import { CommandRunner, bytes, callbackTo } from "../commandRunner.ts";

const mebibyte = 1024 * 1024;
const most = 10 * mebibyte;

let broker: CommandRunner;

beforeEach(async () => {
  broker = await CommandRunner.open();
});

/** Returns the body that the failure callback of a message receives, and its length. */
async function told(outcome: Partial<Outcome>, input: Parameters<typeof makeInput>[0] = {}) {
  const id = await broker.publish({
    retries: 0,
    failureCallback: callbackTo("https://f.example"),
    ...input,
  });
  await broker.settle(id, outcome);
  const [teller] = broker.listReporters(id);
  const body = teller?.body ?? new Uint8Array(0);
  const json = JSON.parse(new TextDecoder().decode(body)) as Record<string, unknown> & {
    body: string;
    sourceBody: string;
  };
  return {
    json,
    size: body.byteLength,
    response: Buffer.from(json.body, "base64"),
    source: Buffer.from(json.sourceBody, "base64"),
  };
}

describe("a failure callback", () => {
  test("has the whole response, and is not marked as truncated", async () => {
    const body = Buffer.alloc(5 * mebibyte, "x");
    const { json, response, size } = await told({ body });
    expect(response.equals(body)).toBe(true);
    expect(json).not.toHaveProperty("truncated");
    expect(size).toBeLessThanOrEqual(most);
  });

  test("has the beginning of the response, marked as truncated, if it would exceed a message", async () => {
    const { json, response, source, size } = await told({ body: Buffer.alloc(9 * mebibyte, "x") });
    expect(json).toMatchObject({ truncated: true, status: 500 });
    expect(size).toBeLessThanOrEqual(most);
    expect(size).toBeGreaterThan(most - 16);
    expect(response.length).toBeGreaterThan(7.4 * mebibyte);
    expect(source.toString()).toBe("hello");
  });

  test("has a response that is still JSON after the cut", async () => {
    const error = JSON.stringify({ error: "TypeError", message: "m".repeat(9 * mebibyte), stack: "s" });
    const { response } = await told({ body: bytes(error) });
    const { message, ...others } = JSON.parse(response.toString()) as { message: string };
    expect(others).toEqual({ error: "TypeError" });
    expect(message).toMatch(/^m+$/);
  });

  test("divides the room between both bodies if the body of the message does not fit either", async () => {
    const answer = Buffer.alloc(9 * mebibyte, "a");
    const body = Buffer.alloc(9 * mebibyte, "b");
    const both = await told({ body: answer }, { body });
    expect(both.json).toMatchObject({ truncated: true });
    expect(both.size).toBeLessThanOrEqual(most);
    expect(Math.abs(both.response.length - both.source.length)).toBeLessThan(8);
    const small = await told({ body: bytes("why") }, { body });
    expect([small.json.truncated, small.response.toString()]).toEqual([true, "why"]);
    expect(small.size).toBeLessThanOrEqual(most);
    expect(small.source.length).toBeGreaterThan(7.4 * mebibyte);
  });

  test("keeps within the limit of its account, and has the headers only if they fit", async () => {
    await broker.run("changeAccount", { account: "acme", change: { limits: { messageBytes: 2_000 } } });
    const headers = [["X", "h".repeat(1_900)]] as const;
    const near = await told({ body: Buffer.alloc(9_000, "x"), headers: [["Y", "1"]] });
    const far = await told({ body: bytes("no"), headers });
    expect(near.size).toBeLessThanOrEqual(2_000);
    expect(near.json).toMatchObject({ truncated: true, header: { Y: ["1"] } });
    expect(far.size).toBeLessThanOrEqual(2_000);
    expect(far.json).toMatchObject({ truncated: true, header: {} });
    expect(far.response.toString()).toBe("no");
  });

  test("is marked as truncated if the response was not read completely, and closes open JSON", async () => {
    const { json, response } = await told({ body: bytes('{"message":"so far'), cut: true });
    expect([json.truncated, response.toString()]).toEqual([true, '{"message":"so far"}']);
  });
});

test("a callback of every attempt keeps within the same limit", async () => {
  const id = await broker.publish({ callback: callbackTo("https://c.example") });
  await broker.settle(id, { status: 200, body: Buffer.alloc(9 * mebibyte, "x") });
  const [teller] = broker.listReporters(id);
  expect(teller?.body.byteLength).toBeLessThanOrEqual(most);
  expect(JSON.parse(new TextDecoder().decode(teller?.body))).toMatchObject({ status: 200, truncated: true });
});

describe("the kept part of a response that only a callback needs as a whole", () => {
  const outcome = { body: Buffer.alloc(3 * mebibyte, "x"), keptBytes: mebibyte, digest: "d" };

  test("is small in the dead letter and in the log, with the hash of the whole response", async () => {
    await told(outcome);
    const [deadLetter] = broker.deadLetters;
    expect(deadLetter).toMatchObject({ digest: "d" });
    expect([deadLetter?.body.byteLength, deadLetter?.body.buffer.byteLength]).toEqual([mebibyte, mebibyte]);
    const row = [...broker.memory.tables.log.values()].find(({ states }) => states.includes("FAILED"));
    expect([row?.body.byteLength, row?.body.buffer.byteLength, row?.digest]).toEqual([16_384, 16_384, "d"]);
  });

  test("is the whole response if the response is small", async () => {
    await told({ body: bytes("no"), keptBytes: mebibyte });
    expect(broker.deadLetters[0]).not.toHaveProperty("digest");
    expect(new TextDecoder().decode(broker.deadLetters[0]?.body)).toBe("no");
  });
});
