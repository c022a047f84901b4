import { describe, expect, test } from "vitest";
import { transaction } from "../../../../src/engine/core/node/weight.ts";
import { takeNextBatch } from "../../../../src/engine/store/batch/nextBatch.ts";

let place = 0;
const call = (account: string, weight: number) => ({
  input: { account },
  weight,
  passedOver: 0,
  place: place++,
});
const light = (account: string) => call(account, 2);
const heavy = (account: string) => call(account, 4 * transaction.rows);

describe("the next batch", () => {
  test("takes all waiting calls if they fit", () => {
    const waiting = [light("a"), light("b"), light("a")];
    const all = [...waiting];
    expect(takeNextBatch(waiting)).toEqual(all);
    expect(waiting).toEqual([]);
  });

  test("takes light calls of other accounts before a heavy call, which runs alone", () => {
    const waiting = [heavy("a"), heavy("a"), light("b")];
    const accounts: string[][] = [];
    while (waiting.length > 0) {
      accounts.push(takeNextBatch(waiting).map(({ input }) => input.account));
      if (accounts.length < 4) waiting.push(light("b"));
    }
    expect(accounts).toEqual([["b"], ["a"], ["b"], ["a"], ["b", "b"]]);
  });

  test("takes turns between accounts if there are too many calls, in order within each account", () => {
    const waiting = [
      ...Array.from({ length: 600 }, () => light("a")),
      ...Array.from({ length: 20 }, () => light("b")),
    ];
    const batch = takeNextBatch(waiting);
    expect(batch).toHaveLength(512);
    expect(batch.filter(({ input }) => input.account === "b")).toHaveLength(20);
    const places = batch.map((one) => one.place);
    expect(places).toEqual(places.toSorted((a, b) => a - b));
    expect(waiting.every(({ input }) => input.account === "a")).toBe(true);
  });

  test("takes a heavy call after one batch, however many light calls other accounts make", () => {
    const waiting = [heavy("victim")];
    const comeMore = () => Array.from({ length: 700 }, (_, at) => waiting.push(light(`other ${at}`)));
    comeMore();
    expect(takeNextBatch(waiting).map(({ input }) => input.account)).not.toContain("victim");
    comeMore();
    // The light calls that were also passed over come first.
    const accounts = [takeNextBatch(waiting), takeNextBatch(waiting)]
      .flat()
      .map(({ input }) => input.account);
    expect(accounts).toContain("victim");
  });

  test("does not change the order of a very long queue", () => {
    const waiting = Array.from({ length: 300_000 }, () => light("a"));
    expect(takeNextBatch(waiting)).toHaveLength(512);
    expect(waiting).toHaveLength(300_000 - 512);
  });
});
