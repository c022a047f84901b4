import { describe, expect, test } from "vitest";
import {
  parseAccountChange,
  requireNamedAccount,
  assertAccountName,
  isDurationLimit,
} from "../../../../src/engine/core/accounts/accountRequest.ts";
import type { Account } from "../../../../src/engine/core/model/account.ts";
import { Refusal } from "../../../../src/engine/core/values/errors.ts";

const change = (asked: Parameters<typeof parseAccountChange>[0]) =>
  parseAccountChange(asked, (field) => `--${field}`);

/** Returns the code and the message of a refusal. */
function refusal(run: () => unknown): [code: string, message: string] {
  try {
    run();
  } catch (error) {
    if (error instanceof Refusal) return [error.code, error.message];
    throw error;
  }
  throw new Error("not refused");
}

test("duration limits are distinguished from counts", () => {
  expect(
    (["delay", "timeout", "logRetention", "parallelism", "queues"] as const).map(isDurationLimit),
  ).toEqual([true, true, true, false, false]);
});

test("a change has only the requested fields", () => {
  expect(change({})).toEqual({});
  expect(change({ plan: "free" })).toEqual({ plan: "free", isPlanHeld: true });
  expect(change({ parallelism: "7", timeout: "30s", logRetention: "7d", queues: "plan" })).toEqual({
    limits: { parallelism: 7, timeout: 30_000, logRetention: 604_800_000, queues: null },
  });
});

test("a price is a number of dollars, or null to use the price of the plan", () => {
  expect(
    ["180", "9.99", "0", "1000000", "0.000001", "plan"].map(
      (price) => change({ reservedPrice: price }).reservedPrice,
    ),
  ).toEqual([180, 9.99, 0, 1_000_000, 0.000_001, null]);
  const problem =
    "is not an amount in dollars; use a number such as 180 or 9.99, at most 1000000, or the word plan";
  for (const price of ["1000001", "-1", "1.0000001", "x", "", "x1", "1x", "10000000000"])
    expect(refusal(() => change({ reservedPrice: price }))).toEqual([
      "invalid",
      `--reservedPrice: ${price} ${problem}`,
    ]);
});

test.each([
  [{ plan: "none" }, /^--plan: none is not a plan; use .*free/],
  [{ parallelism: "0" }, "--parallelism: 0 would stop everything; use 1 or more, or disable the account"],
  [
    { requestsPerSecond: "0" },
    "--requestsPerSecond: 0 would stop everything; use 1 or more, or disable the account",
  ],
  [{ parallelism: "x" }, "--parallelism: x is invalid; use a whole number, or the word plan"],
  [{ parallelism: "1.5" }, "--parallelism: 1.5 is invalid; use a whole number, or the word plan"],
  [{ timeout: "soon" }, "--timeout: soon is invalid; use a duration such as 30s or 7d, or the word plan"],
  [{ timeout: "13h" }, "--timeout: 13h exceeds this server's limit of 43200s"],
  [{ parallelism: "999999999999999" }, /^--parallelism: 9+ exceeds this server's limit of \d+$/],
  [{ logRetention: "59s" }, "--logRetention: 59s is too short; use 60s or more"],
])("%j is refused", (asked, problem) => {
  const [code, message] = refusal(() => change(asked));
  expect(code).toBe("invalid");
  expect(message).toMatch(problem);
});

test("bounds are accepted: the smallest and the largest value, and 0 where 0 means none", () => {
  const { limits } = change({ timeout: "1s", logRetention: "60s", queues: "0", delay: "0s" });
  expect(limits).toEqual({ timeout: 1_000, logRetention: 60_000, queues: 0, delay: 0 });
  expect(change({ timeout: "12h" }).limits).toEqual({ timeout: 43_200_000 });
});

describe("an account in a request", () => {
  const one = { id: "acc_1", name: "acc_2" } as Account;
  const two = { id: "acc_2", name: "shop" } as Account;

  test("is found by its id, even if another account has this id as its name", () => {
    expect(requireNamedAccount([one, two], "acc_2")).toBe(two);
    expect(requireNamedAccount([one, two], "shop")).toBe(two);
    const problem = `${"x".repeat(200)}: account does not exist`;
    expect(refusal(() => requireNamedAccount([one, two], "x".repeat(201)))).toEqual(["not-found", problem]);
  });

  test("has a unique name of at most 100 characters", () => {
    for (const name of ["n", "ü".repeat(100), "two words"])
      expect(() => assertAccountName([one, two], name)).not.toThrow();
    for (const name of ["", "n".repeat(101), "a:b", "a\nb"])
      expect(refusal(() => assertAccountName([], name))).toEqual([
        "invalid",
        "name: invalid; use 1 to 100 characters without colons and control characters",
      ]);
    for (const name of ["shop", "acc_1"])
      expect(refusal(() => assertAccountName([one, two], name))).toEqual([
        "conflict",
        `${name}: an account with this name exists`,
      ]);
  });
});
