import { expect, test } from "vitest";
import { createAdaptiveSync } from "../../../../src/engine/store/sqlite/sync.ts";

/** Opens a disk with a set duration of syncs, and records where each sync waits. */
function open() {
  const disk = { takes: 0.1, fails: false };
  let now = 0;
  let where: string[] = [];
  const wait = (place: string): void => {
    where.push(place);
    now += disk.takes;
    if (disk.fails) throw new Error("disk failed");
  };
  const sync = createAdaptiveSync({
    here: () => wait("here"),
    elsewhere: async () => wait("elsewhere"),
    elapsed: () => now,
  });
  /** Syncs `count` times, and returns how many syncs waited elsewhere. */
  const times = async (count: number): Promise<number> => {
    where = [];
    for (let time = 0; time < count; time++) await sync();
    return where.filter((place) => place === "elsewhere").length;
  };
  return { disk, sync, times };
}

test("a quick disk is synced on this thread", async () => {
  const { disk, times } = open();
  disk.takes = 0.5;
  expect(await times(1_000)).toBe(0);
});

test("a slow disk is synced on another thread, except for occasional checks", async () => {
  const { disk, times } = open();
  disk.takes = 5;
  expect(await times(1)).toBe(0);
  expect(await times(64)).toBe(64);
  expect(await times(1 + 128)).toBe(128);
  await times(20_000);
  // From then on, one sync of 4,097 waits here.
  expect(await times(4_097 * 5)).toBe(4_096 * 5);
});

test("a disk that is quick again is synced on this thread, and a rare slow sync costs little", async () => {
  const { disk, times } = open();
  disk.takes = 5;
  await times(30_000);
  disk.takes = 0.1;
  await times(4_097);
  expect(await times(1_000)).toBe(0);
  disk.takes = 5;
  await times(1);
  disk.takes = 0.1;
  expect(await times(1_000)).toBe(64);
});

test("a failed sync is reported, regardless of its thread", async () => {
  const { disk, sync, times } = open();
  disk.fails = true;
  await expect(sync()).rejects.toThrow("disk failed");
  disk.fails = false;
  disk.takes = 5;
  await times(1);
  disk.fails = true;
  await expect(sync()).rejects.toThrow("disk failed");
});
