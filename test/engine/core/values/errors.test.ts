import { expect, test } from "vitest";
import { Refusal, errorCodes } from "../../../../src/engine/core/values/errors.ts";

// With 650 bytes of stack each, 100 requests of 3,000 refused items crashed a server with 300 MB.
test("a refusal keeps no stack, and other errors do", () => {
  const refusal = new Refusal("invalid", "body: missing");

  expect(refusal.stack).not.toMatch(/\n\s+at /);
  expect(refusal).toMatchObject({ name: "Refusal", code: "invalid", message: "body: missing" });
  expect(new Error("ours").stack).toMatch(/\n\s+at /);
});

test("every code of a refusal has an error status and a meaning", () => {
  for (const [code, { status, meaning }] of Object.entries(errorCodes)) {
    expect(status, code).toBeGreaterThanOrEqual(400);
    expect(meaning, code).toMatch(/^[a-z]+ .*[a-z]$/);
  }
});
