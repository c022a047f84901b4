import { expect, test } from "vitest";
import { isSuccessStatus } from "../../../../src/engine/core/values/status.ts";

test("only a status from 200 to 299 is a success", () => {
  expect([null, 0, 199, 200, 204, 299, 300, 404].filter(isSuccessStatus)).toEqual([200, 204, 299]);
});
