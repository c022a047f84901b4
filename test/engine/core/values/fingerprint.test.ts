import { expect, test } from "vitest";
import { fingerprint } from "../../../../src/engine/core/values/fingerprint.ts";

// Fingerprints are stored, so the fingerprint of a string must never change.
test.each([
  ["", "wvjl67o803"],
  ["a", "262p94epp1d"],
  ["https://shop.example/hook", "24zvfvqpi73"],
  ["ü".repeat(300), "1cx74xaapms"],
])("the fingerprint of %.30s is %s", (text, written) => {
  expect(fingerprint(text)).toBe(written);
});
