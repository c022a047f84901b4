import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { memoize } from "../../../../src/engine/core/caches/memoize.ts";

test("the result for a string is computed once, also if it is null", () => {
  const asked: string[] = [];
  const ask = memoize((text) => {
    asked.push(text);
    return text === "none" ? null : { text };
  });
  expect(ask("a")).toBe(ask("a"));
  expect([ask("none"), ask("none")]).toEqual([null, null]);
  expect(asked).toEqual(["a", "none"]);
});

test("the oldest of 1,001 texts is forgotten, and long texts are not remembered", () => {
  let asked = 0;
  const ask = memoize((text) => `${++asked} ${text.slice(0, 8)}`);
  for (let number = 0; number <= 1_000; number++) ask(String(number));
  expect([ask("1000"), ask("1"), ask("0")]).toEqual(["1001 1000", "2 1", "1002 0"]);
  const long = "x".repeat(256);
  const longer = "x".repeat(257);
  expect([ask(long), ask(long), ask(longer), ask(longer)]).toEqual(
    [1003, 1003, 1004, 1005].map((count) => `${count} xxxxxxxx`),
  );
});

test("a remembered part of a long text does not keep the long text in memory", () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const remember = memoize((text) => text.length);
  const makePart = (number: number): string => {
    const head = Buffer.alloc(1_000_000, `${number} `).toString("latin1");
    return head.slice(10, 60);
  };
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let number = 0; number < 100; number++) remember(makePart(number));
  collect();
  const kept = process.memoryUsage().heapUsed - before;
  expect(remember(makePart(1))).toBe(50);
  expect(kept).toBeLessThan(20_000_000);
});
