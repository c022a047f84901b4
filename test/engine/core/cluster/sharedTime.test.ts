import { expect, test } from "vitest";
import type { UsedTime } from "../../../../src/engine/core/cluster/sharedTime.ts";
import { measureClockJump, nextBatchTime } from "../../../../src/engine/core/cluster/sharedTime.ts";

const plain = (usedAt: number): UsedTime => ({ usedAt, clockOffset: 0, clockOffsetAt: usedAt });
const byOther = (used: UsedTime) => ({ ...used, isOwn: false });
const byOwn = (used: UsedTime) => ({ ...used, isOwn: true });

test("shared time is the clock of the database while that does not go back", () => {
  expect(nextBatchTime({ clock: 1_000, own: null, stored: null })).toEqual(plain(1_000));
  expect(nextBatchTime({ clock: 1_000, own: null, stored: byOther(plain(999)) })).toEqual(plain(1_000));
  // Two batches in one millisecond, of two nodes that do not wait for each other.
  expect(nextBatchTime({ clock: 1_000, own: null, stored: byOther(plain(1_000)) })).toEqual(plain(1_000));
  // The clock may jump forward.
  expect(nextBatchTime({ clock: 301_000, own: plain(999), stored: byOwn(plain(999)) })).toEqual(
    plain(301_000),
  );
});

test("if the clock went back, time continues from the latest time used, also by other nodes", () => {
  const back = 1_000_000 - 300_000;
  expect(nextBatchTime({ clock: back, own: null, stored: byOther(plain(1_000_000)) })).toEqual({
    usedAt: 1_000_001,
    clockOffset: 300_001,
    clockOffsetAt: back,
  });
  expect(nextBatchTime({ clock: back, own: null, stored: byOwn(plain(1_000_000)) })).toEqual({
    usedAt: 1_000_000,
    clockOffset: 300_000,
    clockOffsetAt: back,
  });
  // A time that this node used and could not store counts as well.
  expect(
    nextBatchTime({ clock: back, own: plain(1_000_005), stored: byOther(plain(1_000_000)) }).usedAt,
  ).toBe(1_000_005);
  expect(
    nextBatchTime({ clock: back, own: plain(1_000_000), stored: byOther(plain(1_000_000)) }).usedAt,
  ).toBe(1_000_001);
});

test("the time that passed for a node while the clock went back is not lost", () => {
  const own = plain(1_000_000);
  expect(nextBatchTime({ clock: 702_000, own, stored: byOwn(own), sinceOwn: 2_000 }).usedAt).toBe(1_001_800);
});

test("the offset shrinks at a tenth of the speed, and reaches 0", () => {
  const used: UsedTime = { usedAt: 10_000, clockOffset: 300, clockOffsetAt: 9_700 };
  const at = (clock: number) => nextBatchTime({ clock, own: null, stored: byOwn(used) });
  expect(at(9_709)).toEqual({ usedAt: 10_009, clockOffset: 300, clockOffsetAt: 9_700 });
  expect(at(9_710).usedAt).toBe(10_009);
  expect(at(9_720).usedAt).toBe(10_018);
  expect(at(10_700).usedAt).toBe(10_900);
  expect(at(12_690).usedAt).toBe(12_691);
  expect(at(12_700)).toEqual(plain(12_700));
});

test.each([1, 2, 7])(
  "while time is ahead, it is later than the stored time of another node, with a batch every %d ms",
  (step) => {
    let stored = byOther({ usedAt: 10_000, clockOffset: 300, clockOffsetAt: 9_700 });
    for (let clock = 9_700; clock <= 13_501; clock += step) {
      const used = nextBatchTime({ clock, own: null, stored });
      if (used.clockOffset > 0) expect(used.usedAt).toBeGreaterThan(stored.usedAt);
      else expect(used).toEqual(plain(clock));
      stored = byOther(used);
    }
    // With a batch of another node in every millisecond, the offset cannot shrink: time advances by at least
    // one.
    expect(stored.clockOffset).toBe(step === 1 ? 681 : 0);
  },
);

test("time never goes back, never stops, and catches up with the clock", () => {
  const jumps = [0, -300_000, 0, 300_000, -1, -20, 5_000, -300_000, 300_000];
  let clock = 1_000_000;
  let own = plain(1_000_000);
  for (const jump of jumps) {
    clock += jump;
    for (let turn = 0; turn < 1_000; turn++) {
      clock += 10;
      const used = nextBatchTime({ clock, own, stored: byOwn(own) });
      expect(used.usedAt - own.usedAt).toBeGreaterThanOrEqual(turn === 0 ? 0 : 9);
      own = used;
    }
  }
  for (let turn = 0; turn < 700; turn++)
    own = nextBatchTime({ clock: (clock += 10_000), own, stored: byOwn(own) });
  expect(own).toEqual(plain(clock));
});

test("a jump of the clock is a difference that no possible delay explains", () => {
  const before = { clock: 1_000_000, from: 50, to: 60 };
  expect(measureClockJump(before, { clock: 1_001_000, from: 1_055, to: 1_056 })).toBe(0);
  // A reading that took long proves little.
  expect(measureClockJump(before, { clock: 1_001_000, from: 55, to: 9_000 })).toBe(0);
  expect(measureClockJump(before, { clock: 701_000, from: 1_050, to: 1_060 })).toBe(-299_990);
  expect(measureClockJump(before, { clock: 1_301_000, from: 1_050, to: 1_060 })).toBe(299_990);
});
