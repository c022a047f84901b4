import { describe, expect, test } from "vitest";
import { systemClock } from "../../../../src/engine/clock/clock.ts";
import { sleepReal } from "../../../engine/store/storeFixture.ts";
import { checkpoint, openReplicated, readIds } from "./replicatedStore.ts";

/** A replicated store whose changes are not read before `release`, unless they must be. */
async function openHeld() {
  let isHeld = false;
  let ahead = 0;
  let pending = 0;
  const held: (() => void)[] = [];
  const opened = await openReplicated({
    now: () => systemClock.now() + ahead,
    pause: async (time) => {
      if (time >= 1_000) return sleepReal(time);
      if (isHeld) return new Promise((resolve) => held.push(resolve));
      pending++;
      await sleepReal(time);
      pending--;
    },
  });
  await expect.poll(() => pending).toBe(0);
  await expect.poll(() => opened.replica.report().lag).toBe(0);
  isHeld = true;
  return {
    ...opened,
    held,
    passTime: (time: number): void => void (ahead += time),
    release: (): void => {
      isHeld = false;
      for (const end of held.splice(0)) end();
    },
  };
}

describe("a change that was not read yet", () => {
  test("counts as lag from its commit, until the target has it", async () => {
    const { replica, folder, world, held, passTime, release } = await openHeld();
    const first = await world.send({ delay: 1_000 });
    passTime(60_000);
    const second = await world.send({ delay: 1_000 });
    expect(held).toHaveLength(1);
    expect(replica.report().lag).toBeGreaterThanOrEqual(60_000);
    release();
    await expect.poll(() => replica.report().lag, { timeout: 5_000 }).toBe(0);
    expect(readIds(folder)).toEqual([first, second].toSorted());
  });

  test("is in the replica after a stop", async () => {
    const { folder, store, world } = await openHeld();
    const id = await world.send({ delay: 1_000 });
    await store.close();
    expect(readIds(folder)).toEqual([id]);
  });

  test("is in the replica, although the next changes overwrite it in the log", async () => {
    const { path, folder, events, replica, world, release } = await openHeld();
    const ids: string[] = [];
    for (let n = 0; n < 5; n++) {
      ids.push(await world.send({ delay: 1_000 }), await world.send({ delay: 1_000 }));
      await checkpoint(path);
    }
    ids.push(await world.send({ delay: 1_000 }));
    release();
    await expect.poll(() => replica.report().lag, { timeout: 5_000 }).toBe(0);
    expect(readIds(folder)).toEqual(ids.toSorted());
    expect(events).toEqual([{ what: "complete" }]);
  });
});
