import { expect, test } from "vitest";
import { laneName } from "../../src/core/admission/capacity.ts";
import { notRunning, RunningDeliveries, toLeaseRef } from "../../src/delivery/runningDeliveries.ts";
import type { Running } from "../../src/delivery/runningDeliveries.ts";
import { makeDelivery } from "./http/destination.ts";

const capacity = { total: 4, perHost: 2 };

const makeRunning = (id: string, host = "app.example"): Running => {
  const delivery = makeDelivery(`https://${host}/`, { id });
  const lane = laneName(delivery.message.account, host);
  return {
    delivery,
    lane,
    call: { outcome: new Promise(() => undefined), abort: () => undefined },
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
  deliveries.uncount(first);
  deliveries.remove(first);
  expect(deliveries.hasSpareCapacity(second, capacity)).toBe(true);
  deliveries.countEnded(first, 1);
  expect(deliveries.hasSpareCapacity(second, capacity)).toBe(false);
  expect(deliveries.ended).toBe(1);
  deliveries.countEnded(first, -1);
  expect(deliveries.hasSpareCapacity(second, capacity)).toBe(true);
});

test("only the settled attempt of a message is settled, and gives no lease back", () => {
  const deliveries = new RunningDeliveries(1_000_000);
  const running = makeRunning("a");
  running.delivery.message.run = {
    ...{ run: "run_1", runId: "wfr_1", createdAt: 0, kind: "step", stepKey: "i", position: 0, size: 0 },
  };
  deliveries.add(running);
  const lease = toLeaseRef(running.delivery);
  for (const other of [{ attempt: lease.attempt + 1 }, { account: "other" }, { messageId: "b" }])
    deliveries.settle({ ...lease, ...other });
  expect(running.isSettled).toBe(false);
  deliveries.settle(lease);
  expect(running.isSettled).toBe(true);
  expect(deliveries.abortAll()).toEqual([]);
});
