import { expect, test } from "vitest";
import { elapsed } from "../../../../src/engine/clock/clock.ts";
import { openDisk } from "../../../../src/engine/store/sqlite/sync.ts";
import { checkpoint, openReplicated, readIds } from "./replicatedStore.ts";

test("a replica has a change whose sync is slow, while the log restarts before the sync ends", async () => {
  let isSlow = false;
  const held: (() => void)[] = [];
  const { path, folder, events, store, world } = await openReplicated({
    openDisk: (file) => {
      const disk = openDisk(file, elapsed);
      const wait = (): Promise<void> => new Promise((resolve) => held.push(resolve));
      return { ...disk, sync: () => (isSlow ? wait() : disk.sync()) };
    },
  });
  isSlow = true;
  const sending = world.send({ delay: 1_000 });
  await expect.poll(() => held.length).toBe(1);
  await checkpoint(path);
  const holding = store.hold.set(true);
  await expect.poll(() => held.length).toBe(2);
  isSlow = false;
  for (const end of held) end();
  const id = await sending;
  await holding;
  await store.close();
  expect(readIds(folder)).toEqual([id]);
  expect(events).toEqual([{ what: "complete" }]);
});
