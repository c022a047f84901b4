// @module-tag long
import { rmSync } from "node:fs";
import { expect, test } from "vitest";
import { openReplicated } from "./replicatedStore.ts";

test("a replica that is removed while nothing changes begins again", async () => {
  const { folder, events, store, replica } = await openReplicated();
  rmSync(folder, { recursive: true });
  await expect.poll(() => events.map(({ what }) => what)).toContain("broken");
  expect(replica.report().isComplete).toBe(false);
  await expect.poll(() => replica.report().isComplete).toBe(true);
  await store.close();
});
