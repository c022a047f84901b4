import { expect, test } from "vitest";
import {
  countProgress,
  freeForResponses,
  hasResponseRoom,
  hasStalled,
  needsProgress,
  type RoomProgress,
  smallResponse,
} from "../../../../src/engine/core/node/responseRoom.ts";

test("responses have the memory that messages in flight leave, and always at least a quarter", () => {
  expect(freeForResponses({ total: 100, sending: 0, responses: 0, granted: 0 })).toBe(100);
  expect(freeForResponses({ total: 100, sending: 30, responses: 20, granted: 0 })).toBe(50);
  expect(freeForResponses({ total: 100, sending: 75, responses: 0, granted: 0 })).toBe(25);
  expect(freeForResponses({ total: 100, sending: 100, responses: 20, granted: 0 })).toBe(5);
});

test("a response gets room if it leaves the last eighth, or if no other response was given any", () => {
  const memory = { total: 800, sending: 0, responses: 0, granted: 1 };
  expect(hasResponseRoom(memory, 0, 700)).toBe(true);
  expect(hasResponseRoom(memory, 0, 701)).toBe(false);
  expect(hasResponseRoom({ ...memory, granted: 0 }, 0, 801)).toBe(true);
});

test("the last eighth is for accounts with at most an eighth, and no account exceeds the total", () => {
  const memory = { total: 800, sending: 0, responses: 700, granted: 1 };
  expect(hasResponseRoom(memory, 0, 100)).toBe(true);
  expect(hasResponseRoom(memory, 1, 100)).toBe(false);
  expect(hasResponseRoom({ ...memory, responses: 701 }, 0, 100)).toBe(false);
});

test("a response of 16 KiB does not wait", () => {
  expect(smallResponse).toBe(16_384);
});

/** Looks at a body of these sizes, and returns whether it has stalled after each look. */
function look(...sizes: number[]): boolean[] {
  let progress: RoomProgress | null = null;
  return sizes.map((size) => hasStalled((progress = countProgress(progress, size))));
}

test("a response with room stalls if less than 32 KiB arrive in five looks", () => {
  const kibibyte = 1024;
  expect(look(0, 0, 0, 0, 0, 0)).toEqual([false, false, false, false, false, true]);
  const last = 8 * 1024 * kibibyte - 1;
  expect(look(last, last, last, last, last, last).at(-1)).toBe(true);
  const slow = Array.from({ length: 100 }, (_, second) => second * 7 * kibibyte);
  expect(look(...slow)).not.toContain(true);
  const tooSlow = Array.from({ length: 6 }, (_, second) => second * 6 * kibibyte);
  expect(look(...tooSlow).at(-1)).toBe(true);
  expect(look(0, 0, 0, 0, 0, 32 * kibibyte).at(-1)).toBe(false);
});

test("an account that holds little need not hurry for one that has used up its share", () => {
  const none = { isOwnWaiting: false, isShareWaiting: false };
  expect(needsProgress(800, 100, none)).toBe(false);
  expect(needsProgress(800, 101, none)).toBe(true);
  expect(needsProgress(800, 1, { ...none, isOwnWaiting: true })).toBe(true);
  expect(needsProgress(800, 1, { ...none, isShareWaiting: true })).toBe(true);
});
