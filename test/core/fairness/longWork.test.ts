import { describe, expect, test } from "vitest";
import { LongWork } from "../../../src/core/fairness/longWork.ts";

/** An event loop that turns when it is told to, and work that takes as long as it says. */
function loop() {
  const soon: (() => void)[] = [];
  const ran: string[] = [];
  let now = 0;
  const work = new LongWork({ soon: (run) => void soon.push(run), elapsed: () => now });
  return {
    work,
    ran,
    waits: () => soon.length,
    /** A slice of this name, which takes `time`. */
    add: (owner: string, name: string, { time = 0, expected }: { time?: number; expected?: number } = {}) =>
      work.next(owner, () => void ((now += time), ran.push(name)), expected),
    turn: () => soon.splice(0).forEach((run) => run()),
  };
}

describe("a turn of the event loop", () => {
  test("runs one slice that takes a millisecond, and the next turn another one", () => {
    const { add, turn, ran } = loop();
    for (const name of ["a", "b", "c"]) add("acme", name, { time: 1 });
    expect(ran).toEqual([]);
    turn();
    expect(ran).toEqual(["a"]);
    turn();
    turn();
    expect(ran).toEqual(["a", "b", "c"]);
  });

  test("runs slices until they have taken a millisecond together", () => {
    const { add, turn, ran } = loop();
    for (const name of "abcdef") add("acme", name, { time: 0.4 });
    turn();
    expect(ran.join("")).toBe("abc");
    turn();
    expect(ran.join("")).toBe("abcdef");
  });

  test("counts what follows a slice, such as the read that it allows", () => {
    const { add, turn, ran } = loop();
    for (const name of "abcd") add("acme", name, { expected: 0.5 });
    turn();
    expect(ran.join("")).toBe("ab");
  });

  test("comes only while there is work", () => {
    const { add, turn, waits } = loop();
    add("acme", "a");
    add("acme", "b");
    expect(waits()).toBe(1);
    turn();
    expect(waits()).toBe(0);
  });
});

test("owners take turns, however much each of them waits for", () => {
  const { add, turn, ran } = loop();
  for (const name of ["a1", "a2", "a3"]) add("a", name, { time: 1 });
  add("b", "b1", { time: 1 });
  turn();
  turn();
  expect(ran).toEqual(["a1", "b1"]);
});

test("a slice that is added by a slice runs in a later turn, behind what waits", () => {
  const { work, add, turn, ran } = loop();
  work.next("a", () => add("a", "again"), 1);
  add("a", "waiting", { time: 1 });
  turn();
  turn();
  expect(ran).toEqual(["waiting"]);
  turn();
  expect(ran).toEqual(["waiting", "again"]);
});

test("what was timed is what it took", () => {
  let now = 0;
  const work = new LongWork({ soon: () => undefined, elapsed: () => now });
  expect(work.timed(() => void (now += 2.5))).toBe(2.5);
});
