import { expect, test } from "vitest";
import { freeForResponses, hasResponseRoom, smallResponse } from "../../../src/core/fairness/responseRoom.ts";

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
