import { describe, expect, test } from "vitest";
import { LongWork } from "../../../../src/engine/core/node/longWork.ts";

/** An event loop that the test turns, and work that takes as long as it says. */
function loop() {
  const soon: (() => void)[] = [];
  const ran: string[] = [];
  let now = 0;
  const work = new LongWork({ soon: (run) => void soon.push(run), elapsed: () => now });
  return {
    work,
    ran,
    waits: () => soon.length,
    /** Returns a slice with this name that takes `time`. */
    add: (owner: string, name: string, { time = 0, expected }: { time?: number; expected?: number } = {}) =>
      work.next(owner, () => void ((now += time), ran.push(name)), expected),
    turn: () => soon.splice(0).forEach((run) => run()),
  };
}

describe("a turn of the event loop", () => {
  test("runs one slice that takes a millisecond, and the next turn runs another one", () => {
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

  test("counts the time that a slice causes, such as that of the read that it starts", () => {
    const { add, turn, ran } = loop();
    for (const name of "abcd") add("acme", name, { expected: 0.5 });
    turn();
    expect(ran.join("")).toBe("ab");
  });

  test("is scheduled only while there is work", () => {
    const { add, turn, waits } = loop();
    add("acme", "a");
    add("acme", "b");
    expect(waits()).toBe(1);
    turn();
    expect(waits()).toBe(0);
  });
});

test("owners take turns, regardless of how much each of them waits for", () => {
  const { add, turn, ran } = loop();
  for (const name of ["a1", "a2", "a3"]) add("a", name, { time: 1 });
  add("b", "b1", { time: 1 });
  turn();
  turn();
  expect(ran).toEqual(["a1", "b1"]);
});

test("a slice that is added by a slice runs in a later turn, after waiting slices", () => {
  const { work, add, turn, ran } = loop();
  work.next("a", () => add("a", "again"), 1);
  add("a", "waiting", { time: 1 });
  turn();
  turn();
  expect(ran).toEqual(["waiting"]);
  turn();
  expect(ran).toEqual(["waiting", "again"]);
});

test("timed returns how long a function took", () => {
  let now = 0;
  const work = new LongWork({ soon: () => undefined, elapsed: () => now });
  expect(work.timed(() => void (now += 2.5))).toBe(2.5);
});
