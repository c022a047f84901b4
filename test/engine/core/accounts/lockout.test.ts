import { expect, test } from "vitest";
import type { Failures } from "../../../../src/engine/core/accounts/lockout.ts";
import { lockoutRemaining, maxFailures, addFailure } from "../../../../src/engine/core/accounts/lockout.ts";

const failuresAt = (times: readonly number[]): Failures =>
  times.reduce<Failures | undefined>((known, time) => addFailure(known, time), undefined) ?? {
    count: 0,
    since: 0,
  };

test("callers must wait for the end of a minute only after more failures than the limit", () => {
  const some = Array.from({ length: maxFailures }, (_, second) => second * 1_000);
  expect(lockoutRemaining(failuresAt(some), 19_000)).toBe(0);
  expect(lockoutRemaining(failuresAt([...some, 20_000]), 20_000)).toBe(40_000);
  expect(lockoutRemaining(failuresAt([...some, 20_000, 59_999]), 59_999)).toBe(1);
});

test("a new minute begins with the first failure after the last one, and old failures are forgotten", () => {
  const many = Array.from({ length: 1_000 }, () => 0);
  expect(lockoutRemaining(failuresAt(many), 60_000)).toBe(0);
  expect(failuresAt([...many, 60_000])).toEqual({ count: 1, since: 60_000 });
});

test("a clock that is set back locks out no caller", () => {
  const many = Array.from({ length: 1_000 }, () => 1_000_000);
  expect(lockoutRemaining(failuresAt(many), 999_999)).toBe(0);
  expect(failuresAt([...many, 5])).toEqual({ count: 1, since: 5 });
});
