import { expect, test } from "vitest";
import {
  defaults,
  lazyHistoryBytes,
  limits,
  logBodyBytes,
  maxLostAttempts,
  memory,
  spans,
} from "../../../../src/engine/core/values/limits.ts";

// Clients and guides rely on these numbers. A change of a number breaks a promise.

test("the limits of requests have the promised values", () => {
  expect(limits).toEqual({
    messageBytes: 10_485_760,
    retries: 1_000,
    delay: 31_622_400_000,
    timeout: 43_200_000,
    ackTimeout: 43_200_000,
    deduplicationWindow: 7_776_000_000,
    labels: 32,
    nameLength: 512,
    urlLength: 16_384,
    hostLength: 255,
    headerBytes: 65_536,
    callbackDepth: 2,
    parallelism: 10_000,
    rate: 1_000_000,
    period: 604_800_000,
    queues: 10_000,
    groups: 1_000,
    endpoints: 100,
    schedules: 200_000,
    groupLength: 131_072,
    fanOutBytes: 268_435_456,
    sources: 1_000,
    tokens: 1_000,
    steps: 10_000,
    historyBytes: 134_217_728,
    invokeDepth: 100,
    jobs: 100,
    jobFilter: 65_536,
    tails: 10,
    serverTails: 100,
    tailBytes: 1_048_576,
    notifications: 1_000,
    notificationBytes: 33_554_432,
    waiters: 10_000,
    pulledOrigins: 100,
    pulledAttempts: 100,
    pullWait: 60_000,
    pulls: 2_000,
    serverPulls: 10_000,
  });
});

test("the default settings have the promised values", () => {
  expect(defaults).toEqual({ retries: 3, timeout: 900_000, period: 1_000 });
});

test("the periods of time have the promised values", () => {
  expect(spans).toEqual({
    lease: 30_000,
    waitlistCheck: 1_000,
    deniedWaitlistCheck: 5_000,
    pausedQueueCheck: 10_000,
    limiterCheck: 100,
    deduplication: 600_000,
    signature: 86_400_000,
    afterDeletion: 604_800_000,
    rotation: 86_400_000,
    grace: 60_000,
    idleKey: 3_600_000,
    idleQueue: 604_800_000,
    report: 3_600_000,
  });
});

test("the limits of memory and of kept responses have the promised values", () => {
  expect(memory).toEqual({
    sending: 268_435_456,
    batch: 33_554_432,
    histories: 33_554_432,
    page: 33_554_432,
    settings: 4_194_304,
  });
  expect({ maxLost: maxLostAttempts, lazyBytes: lazyHistoryBytes, logBodyBytes }).toEqual({
    maxLost: 5,
    lazyBytes: 1_048_576,
    logBodyBytes: 16_384,
  });
});
