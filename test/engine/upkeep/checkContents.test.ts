import { expect, test } from "vitest";
import { createContentCheckTask } from "../../../src/engine/upkeep/checkContents.ts";
import type { Store } from "../../../src/engine/store/store.ts";
import { day, minute } from "../../../src/engine/core/values/time.ts";
import { createSteppedClock, TestClock } from "../store/storeFixture.ts";

test("the tables are read one after another, and none is begun while the disk is short", async () => {
  const clock = createSteppedClock(new TestClock());
  const began: (string | null)[] = [];
  let isShort = true;
  const disk = {
    isShort: () => isShort,
    checkTable: async (after: string | null) => {
      began.push(after);
      return after === null ? "messages" : null;
    },
  };
  const store = { upkeep: { disk } } as unknown as Store;
  const task = createContentCheckTask({ store, clock });
  const first = await task.nextAt();
  expect(first - clock.now()).toBe(minute);
  await task.run();
  expect(began).toEqual([]);
  expect(await task.nextAt()).toBe(first);
  isShort = false;
  await task.run();
  expect(began).toEqual([null]);
  expect(await task.nextAt()).toBe(clock.now());
  await task.run();
  expect(began).toEqual([null, "messages"]);
  expect((await task.nextAt()) - clock.now()).toBe(day);
});
