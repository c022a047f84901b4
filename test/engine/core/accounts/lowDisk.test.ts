import { expect, test } from "vitest";
import {
  findStorageRefusal,
  assertStorageAvailable,
} from "../../../../src/engine/core/limits/storageQuota.ts";

const account = { id: "acc" };

test("a low disk refuses new content, and lets active runs continue", () => {
  const find = (continuesRun: boolean, isDiskLow: boolean | undefined) =>
    findStorageRefusal(account, { continuesRun, isDiskLow })?.refused ?? null;
  expect(find(false, true)).toBe("disk-low");
  expect(find(true, true)).toBe(null);
  expect(find(false, false)).toBe(null);
  expect(find(false, undefined)).toBe(null);
  expect(() => assertStorageAvailable(account, { continuesRun: false, isDiskLow: true })).toThrow(
    /^disk: the disk of the server is almost full.*retry later/,
  );
});
