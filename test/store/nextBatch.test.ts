import { describe, expect, test } from "vitest";
import { transaction } from "../../src/core/weight.ts";
import { nextBatch } from "../../src/store/nextBatch.ts";

let place = 0;
const call = (account: string, weight: number) => ({ input: { account }, weight, place: place++ });
const light = (account: string) => call(account, 2);
const heavy = (account: string) => call(account, 4 * transaction.rows);

describe("the next batch", () => {
  test("is all who wait, where they fit", () => {
    const waiting = [light("a"), light("b"), heavy("a")];
    const all = [...waiting];
    expect(nextBatch(waiting)).toEqual(all);
    expect(waiting).toEqual([]);
  });

  test("has the light calls of other accounts before the heavy ones of one, and one of those", () => {
    const waiting = [heavy("a"), heavy("a"), heavy("a"), light("b")];
    expect(nextBatch(waiting).map(({ input }) => input.account)).toEqual(["a", "b"]);
    expect(waiting).toHaveLength(2);
  });

  test("takes turns between accounts when there are too many calls, and keeps the order of each", () => {
    const waiting = [...Array.from({ length: 600 }, () => light("a")), ...Array.from({ length: 20 }, () => light("b"))];
    const batch = nextBatch(waiting);
    expect(batch).toHaveLength(512);
    expect(batch.filter(({ input }) => input.account === "b")).toHaveLength(20);
    const places = batch.map((one) => one.place);
    expect(places).toEqual(places.toSorted((a, b) => a - b));
    expect(waiting.every(({ input }) => input.account === "a")).toBe(true);
  });

  test("never leaves a heavy call for ever: each round has one call of each account", () => {
    const waiting = [heavy("a")];
    const before = waiting[0];
    for (let at = 0; at < 600; at++) waiting.push(light("b"));
    expect(nextBatch(waiting)).toContain(before);
  });
});
