import { expect, test } from "vitest";
import { StorageHealth } from "../../../../src/engine/store/batch/storageHealth.ts";
import { NoRoom, Unavailable } from "../../../../src/engine/store/layout/storageErrors.ts";

const mebibyte = 1024 * 1024;

test("after a large body lacked room, the probe writes as much as this body", async () => {
  const probed: number[] = [];
  const health = new StorageHealth({ probe: async (bytes) => void probed.push(bytes) });
  health.fail(new NoRoom("full"), 40 * mebibyte);
  health.fail(new NoRoom("full"), mebibyte);
  expect(await health.takesChanges()).toBe(true);
  health.fail(new NoRoom("full"), 1_000 * mebibyte);
  expect(await health.takesChanges()).toBe(true);
  health.fail(new NoRoom("full"));
  expect(await health.takesChanges()).toBe(true);
  expect(probed).toEqual([40 * mebibyte, 64 * mebibyte, 4 * mebibyte]);
});

test("a change that fails during a probe keeps the storage in doubt, whatever the reason", async () => {
  let probes = 0;
  const health = new StorageHealth({
    probe: async () => {
      if (++probes === 1) health.fail(new Unavailable("lost"));
    },
  });
  health.fail(new Unavailable("lost"));
  expect(await health.takesChanges()).toBe(false);
  expect(await health.takesChanges()).toBe(true);
  expect(probes).toBe(2);
});
