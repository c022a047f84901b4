import { expect, test } from "vitest";
import {
  findFlowControlRefusal,
  findParallelismRefusal,
  findSendingRefusal,
} from "../../../../src/engine/core/limits/sendingLimits.ts";
import type { Account } from "../../../../src/engine/core/model/account.ts";
import { callbackTo, makeInput, noon } from "../commandRunner.ts";

const account = {
  id: "acme",
  limits: { delay: 10_000, retries: 5, timeout: 30_000, parallelism: 3 },
} as unknown as Account;
const callback = callbackTo("https://e.example/");
const broken = (input: Parameters<typeof makeInput>[0]) =>
  findSendingRefusal(account, makeInput(input), noon);

test.each([
  [{ delay: 10_001 }, "delay: 10s1ms exceeds the limit of 10s"],
  [{ notBefore: noon + 11_000 }, "not-before: 11s from now exceeds the limit of 10s"],
  [{ retries: 6 }, "retries: 6 exceeds the limit of 5"],
  [{ timeout: 30_001 }, "timeout: 30s1ms exceeds the limit of 30s"],
  [{ headers: [["X-A", "x".repeat(65_534)] as const] }, "headers: 65537 bytes exceeds the limit of 65536"],
  [
    { flowControl: { key: "k", parallelism: 10_001, rate: null, period: 1_000 } },
    "parallelism: 10001 exceeds the limit of 10000",
  ],
  [{ callback: { ...callback, retries: 6 } }, "retries: 6 exceeds the limit of 5"],
  [{ callback: { ...callback, delay: 10_001 } }, "delay: 10s1ms exceeds the limit of 10s"],
  [{ failureCallback: { ...callback, timeout: 31_000 } }, "timeout: 31s exceeds the limit of 30s"],
  [{ callback: { ...callback, callback: { ...callback, retries: 7 } } }, "retries: 7 exceeds the limit of 5"],
  [
    { callback: { ...callback, failureCallback: { ...callback, retries: 7 } } },
    "retries: 7 exceeds the limit of 5",
  ],
])("%j is refused, because it exceeds a limit of the account", (input, problem) => {
  expect(broken(input)).toMatchObject({
    refused: "limit-exceeded",
    message: expect.stringContaining(problem),
  });
});

test("the exact limits are accepted", () => {
  expect(broken({})).toBeNull();
  expect(
    broken({ delay: 10_000, retries: 5, timeout: 30_000, headers: [["X-A", "x".repeat(65_533)]], callback }),
  ).toBeNull();
  expect(broken({ notBefore: noon + 10_000, failureCallback: { ...callback, retries: 5 } })).toBeNull();
});

test("flow control of a queue or a key has limits as well", () => {
  expect(findFlowControlRefusal({})).toBeNull();
  expect(findFlowControlRefusal({ parallelism: 10_000, rate: 1_000_000, period: 604_800_000 })).toBeNull();
  expect(findFlowControlRefusal({ rate: 1_000_001 })).toEqual({
    refused: "limit-exceeded",
    message: "rate: 1000001 exceeds the limit of 1000000",
  });
  expect(findFlowControlRefusal({ period: 604_801_000 })).toEqual({
    refused: "invalid",
    message: "period: 7d1s exceeds the limit of 7d",
  });
  expect(findParallelismRefusal(account, 3)).toBeNull();
  expect(findParallelismRefusal(account, 4)).toMatchObject({
    refused: "limit-exceeded",
    message: expect.stringContaining("parallelism: 4 exceeds the limit of 3"),
  });
});
