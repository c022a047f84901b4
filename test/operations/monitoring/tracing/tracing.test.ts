import { expect, test } from "vitest";
import type { StoredMessage } from "../../../../src/engine/core/model/message.ts";
import { makeStoredMessage, noMessageSettings } from "../../../../src/engine/core/model/message.ts";
import { noBytes } from "../../../../src/engine/core/values/basics.ts";
import { noSendSettings } from "../../../../src/engine/core/model/sendSettings.ts";
import type { TraceSpan } from "../../../../src/operations/monitoring/tracing/spans.ts";
import { Tracing } from "../../../../src/operations/monitoring/tracing/tracing.ts";

const traceId = "a".repeat(32);
const parentId = "b".repeat(16);
const beganAt = 1_000_000;

/** Returns the span of an attempt that begins `after` milliseconds after its message was created. */
function attemptSpan(after: number, changes: Partial<StoredMessage> = {}): TraceSpan | undefined {
  const spans: TraceSpan[] = [];
  const tracing = new Tracing({ now: () => 0, add: (span) => spans.push(span), toSpanId: () => "c" });
  const message = makeStoredMessage(
    { ...noMessageSettings, ...noSendSettings, brand: "svc", url: "https://a.example/b", body: noBytes },
    {
      ...{ account: "acc", id: "msg_1", createdAt: beganAt, notBefore: beganAt, retries: 0, timeout: 1000 },
      startedAtOnce: true,
    },
  );
  const trace = { parent: `00-${traceId}-${parentId}-01` };
  tracing.addAttempt(
    { message: { ...message, trace, ...changes }, attempt: 0, signingKey: "" },
    {
      ...{ account: "acc", messageId: "msg_1", host: "a.example", attempt: 0, status: null, headers: [] },
      ...{ body: noBytes, error: "timed out after 1 s", took: 5 },
      timing: { startedAt: beganAt + after, connect: null, firstByte: null, duration: 5 },
    },
    "failed",
  );
  return spans[0];
}

test("an attempt is a child of its publish for a minute, and then has a link to it", () => {
  const child = attemptSpan(60_000);
  expect(child).toMatchObject({ traceId, parentSpanId: parentId, startedAt: beganAt + 60_000 });
  expect(child?.linkedSpanId).toBeUndefined();
  const late = attemptSpan(60_001);
  expect(late).toMatchObject({ traceId, linkedSpanId: parentId });
  expect(late?.parentSpanId).toBeUndefined();
});

test("a message of a schedule has a link, because its trace began when the schedule was created", () => {
  expect(attemptSpan(0, { scheduleId: "scd_1" })).toMatchObject({ traceId, linkedSpanId: parentId });
});

test("a timeout has its own error type", () => {
  expect(attemptSpan(0)).toMatchObject({
    error: "timed out after 1 s",
    attributes: { "error.type": "timeout", "server.port": 443, "waypost.outcome": "failed" },
  });
});

test("an attempt of a trace that is not recorded has no span", () => {
  expect(attemptSpan(0, { trace: { parent: `00-${traceId}-${parentId}-00` } })).toBeUndefined();
});
