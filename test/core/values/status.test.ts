import { expect, test } from "vitest";
import { isSuccessStatus } from "../../../src/core/values/status.ts";

test("from 200 to 299 a status is a success, and no status is none", () => {
  expect([null, 0, 199, 200, 204, 299, 300, 404].filter(isSuccessStatus)).toEqual([200, 204, 299]);
});
