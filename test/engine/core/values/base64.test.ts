import { expect, test } from "vitest";
import { base64 } from "../../../../src/engine/core/values/base64.ts";

test("only the bytes of a view are encoded in base64, and not the bytes around the view", () => {
  const all = new TextEncoder().encode("before, hello, after");
  expect([base64(all.subarray(8, 13)), base64(new Uint8Array())]).toEqual(["aGVsbG8=", ""]);
});
