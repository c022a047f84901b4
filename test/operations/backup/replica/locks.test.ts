import { readFileSync, rmSync, statSync } from "node:fs";
import { expect, test } from "vitest";
import { openReplicated } from "./replicatedStore.ts";

test("the locks of the store stay when a replica is interrupted, and begins again", async () => {
  const { path, folder, events, world, store } = await openReplicated();
  const { ino } = statSync(`${path}-shm`);
  const readLocks = (): string[] =>
    readFileSync("/proc/locks", "utf8")
      .split("\n")
      .filter((line) => line.includes(`:${ino} `) && line.includes(` ${process.pid} `))
      .map((line) => line.slice(line.indexOf(":") + 1).trim());
  const before = readLocks();
  expect(before).not.toEqual([]);
  rmSync(folder, { recursive: true });
  await world.send({ delay: 1_000 });
  await expect.poll(() => events.map(({ what }) => what)).toContain("broken");
  expect(readLocks()).toEqual(before);
  await store.close();
});
