import { describe, expect, test } from "vitest";
import {
  countBodyBytes,
  splitInputs,
  transaction,
  weighCommand,
} from "../../../../src/engine/core/node/weight.ts";
import { limits } from "../../../../src/engine/core/values/limits.ts";
import { bytes, makeInput } from "../commandRunner.ts";

const many = (count: number, over: Parameters<typeof makeInput>[0] = {}) =>
  Array.from({ length: count }, () => makeInput(over));
const labels = Array.from({ length: 32 }, (_, at) => `label ${at}`);
const sizesOf = (inputs: ReturnType<typeof many>) => splitInputs(inputs).map(({ length }) => length);

describe("the parts of a list", () => {
  test("are stored one after another, a quarter of a transaction each", () => {
    expect(sizesOf(many(300))).toEqual([127, 127, 46]);
    expect(splitInputs(many(300)).flat()).toHaveLength(300);
  });

  test("are smaller if messages have many labels, large bodies, or go to groups", () => {
    expect(sizesOf(many(20, { labels }))).toEqual([7, 7, 6]);
    expect(sizesOf(many(4, { body: new Uint8Array(2 ** 18) }))).toEqual([3, 1]);
    expect(sizesOf(many(3, { group: "g", url: "", labels }))).toEqual([1, 1, 1]);
  });

  test("are not divided if a message belongs to a workflow run, so the list is stored as a whole", () => {
    const post = { kind: "start", runId: "wfr_1", origin: "new", invoker: null } as never;
    expect(sizesOf([...many(300), makeInput({ post })])).toEqual([301]);
  });

  test("of one message, and of none, are the list itself", () => {
    expect(sizesOf(many(1))).toEqual([1]);
    expect(splitInputs([])).toEqual([[]]);
  });
});

test("512 plain publishes fit into one transaction", () => {
  const body = new Uint8Array(0);
  expect(512 * weighCommand({ inputs: many(1, { body }) })).toBeLessThanOrEqual(transaction.rows);
});

test("a message to a URL group counts its body once for each endpoint that a group may have", () => {
  const one = makeInput({ body: bytes("four") });
  const toGroup = makeInput({ group: "g", url: "", body: bytes("sixsix") });
  expect(countBodyBytes({ inputs: [one, toGroup] })).toBe(4 + 6 * limits.endpoints);
  expect(countBodyBytes({ body: bytes("four") })).toBe(4);
  expect(countBodyBytes({ inputs: [] })).toBe(0);
  expect(countBodyBytes({ account: "acme" })).toBe(0);
});
