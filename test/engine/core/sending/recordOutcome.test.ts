import { expect, test } from "vitest";
import type { DestinationResponse } from "../../../../src/engine/core/model/attempt.ts";
import {
  toLoggedResponse,
  toFailureCallbackInfo,
  isSuccess,
  toDeadLetterResponse,
  noResponse,
} from "../../../../src/engine/core/sending/recordOutcome.ts";
import { logBodyBytes } from "../../../../src/engine/core/values/limits.ts";
import { bytes } from "../commandRunner.ts";

const headers: DestinationResponse["headers"] = [["X-A", "1"]];
const short: DestinationResponse = { status: 200, headers, body: bytes("abcdef"), error: null };
const whole = bytes("x".repeat(logBodyBytes));
const long: DestinationResponse = {
  ...short,
  body: bytes("x".repeat(logBodyBytes + 1)),
  digest: "sha256",
  cut: true,
};

test("a status from 200 to 299 is a success", () => {
  expect([199, 200, 299, 300, null].map((status) => isSuccess({ status }))).toEqual([
    false,
    true,
    true,
    false,
    false,
  ]);
});

test("the log keeps the beginning of a body, and marks it as cut", () => {
  expect(toLoggedResponse(short)).toEqual({ status: 200, headers, error: null, body: short.body });
  expect(toLoggedResponse({ ...short, body: whole }).body).toBe(whole);
  expect(toLoggedResponse(long)).toEqual({
    status: 200,
    headers,
    error: null,
    body: whole,
    digest: "sha256",
    cut: true,
  });
  expect(toLoggedResponse(short)).not.toHaveProperty("cut");
});

test("a dead letter keeps the allowed part of a body, and the digest of a longer one", () => {
  expect(toDeadLetterResponse(long)).toEqual({
    status: 200,
    headers,
    error: null,
    body: long.body,
    cut: true,
  });
  expect(toDeadLetterResponse({ ...short, digest: "sha256", keptBytes: 6 })).toEqual({
    status: 200,
    headers,
    error: null,
    body: short.body,
  });
  expect(toDeadLetterResponse({ ...short, digest: "sha256", keptBytes: 5 })).toEqual({
    status: 200,
    headers,
    error: null,
    body: bytes("abcde"),
    digest: "sha256",
  });
  expect(toDeadLetterResponse({ ...short, keptBytes: 5 })).toEqual({
    status: 200,
    headers,
    error: null,
    body: bytes("abcde"),
  });
});

test("the response to a failure callback is shown with everything that is known about it", () => {
  expect(toFailureCallbackInfo(noResponse)).toEqual({ responseBody: "", responseHeaders: [] });
  expect(toFailureCallbackInfo(short)).toEqual({
    responseStatus: 200,
    responseBody: "abcdef",
    responseHeaders: headers,
  });
  expect(toFailureCallbackInfo(long)).toEqual({
    responseStatus: 200,
    responseBody: "x".repeat(logBodyBytes),
    responseHeaders: headers,
    digest: "sha256",
    cut: true,
  });
});
