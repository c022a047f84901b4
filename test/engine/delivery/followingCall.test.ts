import { expect, test } from "vitest";
import type { AlarmClock } from "../../../src/engine/clock/clock.ts";
import type { Outcome } from "../../../src/engine/core/model/attempt.ts";
import type { DeliveryCall } from "../../../src/engine/delivery/deliver.ts";
import { beginAfter } from "../../../src/engine/delivery/followingCall.ts";
import { notRunning, type Running } from "../../../src/engine/delivery/runningDeliveries.ts";
import { makeDelivery } from "./http/destination.ts";

/** A clock that only the test moves. */
function createManualClock() {
  let time = 1_000;
  const alarms = new Set<{ at: number; ring: () => void }>();
  const clock: AlarmClock = {
    now: () => time,
    sleep: () => expect.unreachable("nothing sleeps"),
    alarm: (delay, ring) => {
      const alarm = { at: time + delay, ring };
      alarms.add(alarm);
      return () => void alarms.delete(alarm);
    },
  };
  const advance = async (by: number): Promise<void> => {
    time += by;
    for (const { at, ring } of [...alarms]) if (at <= time) ring();
    await settled();
  };
  return { clock, advance, alarms };
}

/** Waits until all promises that can resolve have done so. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const outcome = { status: 200, error: null } as Outcome;
const noOutcome = { status: null, error: "aborted" } as Outcome;

function createCall() {
  const { promise, resolve } = Promise.withResolvers<Outcome>();
  let begun = 0;
  let aborted = 0;
  const call: DeliveryCall = { outcome: promise, abort: () => (aborted++, resolve(outcome)) };
  const unsent: string[] = [];
  return {
    call,
    following: (mayBegin = (): boolean => true) => ({
      begin: () => (begun++, call),
      mayBegin,
      end: (why: string) => (unsent.push(why), noOutcome),
    }),
    end: () => resolve(outcome),
    counts: () => ({ begun, aborted }),
    unsent,
  };
}

const runningOf = (call: DeliveryCall): Running => ({
  ...{
    delivery: makeDelivery("https://app.example/", {}),
    lane: "",
    call,
    sentAt: 0,
    leasedAt: 0,
    index: notRunning,
  },
  ...{ responseRoom: { close: () => undefined }, isSettled: true },
});

test("a following call begins when the call before it has ended", async () => {
  const { clock, advance, alarms } = createManualClock();
  const [before, next] = [createCall(), createCall()];
  const call = beginAfter(runningOf(before.call), clock, next.following());
  await advance(49);
  expect(next.counts().begun).toBe(0);
  before.end();
  await settled();
  expect(next.counts()).toEqual({ begun: 1, aborted: 0 });
  expect(alarms.size).toBe(0);
  next.end();
  expect(await call.outcome).toBe(outcome);
  await advance(100);
  expect(next.counts()).toEqual({ begun: 1, aborted: 0 });
});

test("a call that does not end delays what follows it by 50 ms, once", async () => {
  const { clock, advance } = createManualClock();
  const [before, one, two, three] = [createCall(), createCall(), createCall(), createCall()];
  const running = runningOf(before.call);
  beginAfter(running, clock, one.following());
  await advance(20);
  beginAfter(running, clock, two.following());
  await advance(29);
  expect([one.counts().begun, two.counts().begun]).toEqual([0, 0]);
  await advance(1);
  expect([one.counts().begun, two.counts().begun]).toEqual([1, 1]);
  beginAfter(running, clock, three.following());
  expect(three.counts().begun).toBe(1);
});

test("a following call that is aborted while it waits never begins", async () => {
  const { clock, advance, alarms } = createManualClock();
  const [before, next] = [createCall(), createCall()];
  const call = beginAfter(runningOf(before.call), clock, next.following());
  call.abort();
  expect(await call.outcome).toBe(noOutcome);
  expect(alarms.size).toBe(0);
  before.end();
  await advance(100);
  call.abort();
  expect(next.counts()).toEqual({ begun: 0, aborted: 0 });
  expect(next.unsent).toEqual(["aborted"]);
});

test("a following call that has begun is aborted itself", async () => {
  const { clock, advance } = createManualClock();
  const [before, next] = [createCall(), createCall()];
  const call = beginAfter(runningOf(before.call), clock, next.following());
  await advance(50);
  call.abort();
  expect(await call.outcome).toBe(outcome);
  expect(next.counts()).toEqual({ begun: 1, aborted: 1 });
});

test("a following call does not begin if nothing may begin when its wait ends", async () => {
  const { clock, advance } = createManualClock();
  const [before, next] = [createCall(), createCall()];
  let mayBegin = true;
  const call = beginAfter(
    runningOf(before.call),
    clock,
    next.following(() => mayBegin),
  );
  mayBegin = false;
  before.end();
  expect(await call.outcome).toBe(noOutcome);
  mayBegin = true;
  await advance(100);
  expect(next.counts().begun).toBe(0);
  expect(next.unsent).toEqual(["held"]);
});
