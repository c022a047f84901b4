import { expect, test } from "vitest";
import { laneName } from "../../../src/engine/core/admission/capacity.ts";
import { failingAfter } from "../../../src/engine/core/node/failingLanes.ts";
import type { RunPart } from "../../../src/engine/core/model/runPost.ts";
import type { Outcome } from "../../../src/engine/core/model/attempt.ts";
import { notRunning, RunningDeliveries, toLeaseRef } from "../../../src/engine/delivery/runningDeliveries.ts";
import type { Running } from "../../../src/engine/delivery/runningDeliveries.ts";
import { makeDelivery } from "./http/destination.ts";

const capacity = { total: 4, perHost: 2 };

const makeOutcome = (status: number): Outcome => ({
  ...{ account: "acc", messageId: "a", host: "app.example", attempt: 0, status, headers: [], took: 1 },
  ...{ body: new Uint8Array(0), error: null },
});

const makeRunning = (id: string, host = "app.example"): Running => {
  const delivery = makeDelivery(`https://${host}/`, { id });
  const lane = laneName(delivery.message.account, host);
  return {
    delivery,
    lane,
    call: { outcome: new Promise(() => undefined), abort: () => undefined },
    sentAt: 0,
    leasedAt: 0,
    index: notRunning,
    responseRoom: { close: () => undefined },
    isSettled: false,
  };
};

test("a place counts as used until the outcome that gives it to another message is stored", () => {
  const deliveries = new RunningDeliveries(1_000_000);
  const [first, second, other] = [makeRunning("a"), makeRunning("b"), makeRunning("c", "other.example")];
  for (const one of [first, second, other]) deliveries.add(one);
  expect(deliveries.hasSpareCapacity(first, capacity)).toBe(false);
  deliveries.uncount(first, makeOutcome(200), 1);
  deliveries.remove(first);
  expect(deliveries.hasSpareCapacity(second, capacity)).toBe(true);
  deliveries.countEnded(first, 1);
  expect(deliveries.hasSpareCapacity(second, capacity)).toBe(false);
  expect(deliveries.ended).toBe(1);
  deliveries.countEnded(first, -1);
  expect(deliveries.hasSpareCapacity(second, capacity)).toBe(true);
});

test("a host that fails has no spare capacity, because its messages may wait without using it up", () => {
  const deliveries = new RunningDeliveries(1_000_000);
  const last = makeRunning("last");
  deliveries.add(last);
  expect(deliveries.hasSpareCapacity(last, capacity)).toBe(true);
  for (let n = 0; n < failingAfter; n++) {
    const failed = makeRunning(`failed ${n}`);
    deliveries.add(failed);
    deliveries.uncount(failed, makeOutcome(500), 1_000 + n);
    deliveries.remove(failed);
  }
  const { account } = last.delivery.message;
  const [failing] = deliveries.listFailingHosts(account);
  expect(failing).toMatchObject({ failures: failingAfter, since: 1_000, last: 1_000 + failingAfter - 1 });
  expect(deliveries.listFailingHosts(`${account}2`)).toEqual([]);
  expect(deliveries.hasSpareCapacity(last, capacity)).toBe(false);
});

function makeRunningStep(): Running {
  const running = makeRunning("a");
  running.delivery.message.run = {
    ...{ run: "run_1", runId: "wfr_1", createdAt: 0, kind: "step", stepKey: "i", position: 0, size: 0 },
  };
  return running;
}

test("a step can settle a delivery until its outcome is stored", () => {
  const deliveries = new RunningDeliveries(1_000_000);
  const [running, later] = [makeRunningStep(), makeRunningStep()];
  for (const one of [running, later]) {
    deliveries.add(one);
    deliveries.remove(one);
    deliveries.countEnded(one, 1);
  }
  deliveries.countEnded(running, -1);
  deliveries.settle(toLeaseRef(running.delivery));
  expect([running.isSettled, later.isSettled]).toEqual([false, true]);
  deliveries.countEnded(later, -1);
  later.isSettled = false;
  deliveries.settle(toLeaseRef(later.delivery));
  expect(later.isSettled).toBe(false);
});

test("only the settled attempt of a message is settled, and gives no lease back", () => {
  const deliveries = new RunningDeliveries(1_000_000);
  const running = makeRunningStep();
  deliveries.add(running);
  const lease = toLeaseRef(running.delivery);
  for (const other of [{ attempt: lease.attempt + 1 }, { account: "other" }, { messageId: "b" }])
    deliveries.settle({ ...lease, ...other });
  expect(running.isSettled).toBe(false);
  deliveries.settle(lease);
  expect(running.isSettled).toBe(true);
  expect(deliveries.abortAll()).toEqual([]);
});

test("a delivery follows a running call of the same account", () => {
  const deliveries = new RunningDeliveries(1_000_000);
  const run: RunPart = {
    ...{ run: "run_1", runId: "wfr_1", createdAt: 0, stepKey: "i", position: 0, size: 1 },
    kind: "step",
  };
  const first = makeRunning("first");
  const call: Running = {
    ...first,
    delivery: { ...first.delivery, message: { ...first.delivery.message, run } },
  };
  deliveries.add(call);
  const { delivery } = makeRunning("next");
  const { message } = delivery;
  expect(deliveries.findFollowed(delivery)).toBeUndefined();
  expect(deliveries.findFollowed({ ...delivery, follows: "first" })).toBe(call);
  expect(deliveries.findFollowed({ ...delivery, follows: "other" })).toBeUndefined();
  const foreign = { ...delivery, message: { ...message, account: "other" }, follows: "first" };
  expect(deliveries.findFollowed(foreign)).toBeUndefined();
  deliveries.remove(call);
  deliveries.countEnded(call, 1);
  expect(deliveries.findFollowed({ ...delivery, follows: "first" })).toBeUndefined();
});
