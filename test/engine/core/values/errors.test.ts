import { expect, test } from "vitest";
import { Refusal, errorCodes } from "../../../../src/engine/core/values/errors.ts";

// With 650 bytes of stack each, 100 requests of 3,000 refused items crashed a server with 300 MB.
test("a refusal keeps no stack, and other errors do", () => {
  const refusal = new Refusal("invalid", "body: missing");

  expect(refusal.stack).not.toMatch(/\n\s+at /);
  expect(refusal).toMatchObject({ name: "Refusal", code: "invalid", message: "body: missing" });
  expect(new Error("ours").stack).toMatch(/\n\s+at /);
});

// Programs compare the codes (`docs/versioning.md`). A code may be added, and none may be renamed or get
// another status.
test("the codes are those that programs know", () => {
  const statuses = Object.entries(errorCodes).map(([code, { status }]) => [code, status]);
  expect(Object.fromEntries(statuses)).toEqual({
    invalid: 400,
    unauthorized: 401,
    forbidden: 403,
    "not-found": 404,
    "method-not-allowed": 405,
    "request-timeout": 408,
    conflict: 409,
    "attempt-ended": 409,
    "attempt-reported": 409,
    "attempt-running": 409,
    "limit-exceeded": 412,
    "step-refused": 412,
    "too-large": 413,
    "day-limit-exceeded": 429,
    "storage-quota-exceeded": 429,
    "too-many-failures": 429,
    "too-many-requests": 429,
    "headers-too-large": 431,
    internal: 500,
    busy: 503,
    "disk-low": 503,
    "outcome-unknown": 503,
    stopping: 503,
    "too-slow": 503,
    unavailable: 503,
  });
});

test("every code of a refusal has an error status and a meaning", () => {
  for (const [code, { status, meaning }] of Object.entries(errorCodes)) {
    expect(status, code).toBeGreaterThanOrEqual(400);
    expect(meaning, code).toMatch(/^[a-z]+ .*[a-z]$/);
  }
});
