import { fc } from "../../../seeds.ts";
import { describe, expect, test } from "vitest";
import type { SentStep } from "../../../../src/engine/core/model/run.ts";
import { lazyHistoryBytes } from "../../../../src/engine/core/values/limits.ts";
import { RecentHistories } from "../../../../src/engine/store/histories/recentHistories.ts";
import { SentHistory } from "../../../../src/engine/store/histories/sentHistory.ts";

const toNeed = (run: number) => ({ account: "acc", run: `run_${run}` });
const makeStep = (position: number, bytes: number): SentStep => ({
  position,
  messageId: "msg_1",
  callType: "step",
  body: new Uint8Array(bytes),
});

/** Adds a step to a run, as a batch does. */
function grow(recent: RecentHistories, run: number, bytes: number): void {
  const history = recent.get(toNeed(run)) ?? new SentHistory();
  const before = history.memory;
  history.append([makeStep(history.count, bytes)]);
  recent.keep(toNeed(run), history, history.memory - before);
}

const maxBytes = 64 * 1024;
/** The most that one history can take up in these tests. */
const largestBytes = 16 * 1024;

describe("the memory of all histories", () => {
  test("stays below its limit, apart from one history, and what is kept is whole", () => {
    const action = fc.record({
      run: fc.nat(40),
      bytes: fc.nat(600),
      kind: fc.constantFrom("grow", "grow", "grow", "delete"),
    });
    fc.assert(
      fc.property(fc.array(action, { maxLength: 400 }), (actions) => {
        const recent = new RecentHistories(maxBytes);
        for (const { run, bytes, kind } of actions) {
          if (kind === "delete") recent.delete(toNeed(run));
          else if ((recent.get(toNeed(run))?.count ?? 0) < 8) grow(recent, run, bytes);
          expect(recent.memory).toBeLessThanOrEqual(maxBytes + largestBytes);
        }
      }),
    );
  });

  test("is not used up by runs that end", () => {
    const recent = new RecentHistories(maxBytes);
    for (let run = 0; run < 1_000; run++) {
      grow(recent, run, 500);
      if (run > 2) recent.delete(toNeed(run - 2));
    }
    expect(recent.memory).toBeLessThan(8 * 1024);
  });
});

test("the runs that were called last are kept, and a run that is called often is never dropped", () => {
  const recent = new RecentHistories(maxBytes);
  grow(recent, 0, 500);
  for (let run = 1; run < 200; run++) {
    grow(recent, run, 500);
    if (run % 10 === 0) recent.keep(toNeed(0), recent.get(toNeed(0)) ?? new SentHistory(), 0);
  }
  expect(recent.get(toNeed(0))?.count).toBe(1);
  expect(recent.get(toNeed(1))).toBeUndefined();
  expect(recent.get(toNeed(199))?.count).toBe(1);
});

test("runs of different accounts are kept apart", () => {
  const recent = new RecentHistories();
  recent.keep({ account: "a", run: "b c" }, new SentHistory(), 0);
  expect(recent.get({ account: "a", run: "b" })).toBeUndefined();
  expect(recent.get({ account: "b", run: "b c" })).toBeUndefined();
});

test("a history that is too long for most endpoints is not kept", () => {
  const recent = new RecentHistories();
  const longest = Math.floor((lazyHistoryBytes / 4) * 3) - 1_000;
  grow(recent, 1, longest);
  expect(recent.get(toNeed(1))?.count).toBe(1);
  grow(recent, 1, 2_000);
  expect(recent.get(toNeed(1))).toBeUndefined();
});

test("nothing is kept after everything was forgotten", () => {
  const recent = new RecentHistories();
  grow(recent, 1, 10);
  recent.forget();
  expect(recent.get(toNeed(1))).toBeUndefined();
  expect(recent.memory).toBe(0);
});
