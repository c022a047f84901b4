import { afterEach, describe, expect, test } from "vitest";
import { commands } from "../../../src/engine/store/catalog/commands.ts";
import type { Decision, Draft } from "../../../src/engine/core/decision/command.ts";
import { createSelfCheckTask } from "../../../src/operations/selfCheck/task.ts";
import type { Repaired } from "../../../src/operations/operation.ts";
import type { OpenStore } from "../../engine/store/storeFixture.ts";
import type { StoreFixture } from "../../engine/store/storeFixture.ts";
import { makeInput } from "../../engine/store/storeFixture.ts";
import {
  makeRunStart,
  makeWaiter,
  openWithAccount,
  readActiveRun,
} from "../../engine/store/contract/runs.ts";

type Change = (draft: Draft) => void;

/** A command that only these tests have, because no real one damages rows. */
const damagingName = "damage";
const commandTable = commands as Record<string, unknown>;

/** Changes rows behind the back of all commands. */
async function damage(fixture: StoreFixture, change: Change): Promise<void> {
  const { store } = fixture;
  const decision: Decision<object, null> = {
    decide: (_, draft) => {
      change(draft);
      return null;
    },
  };
  commandTable[damagingName] = decision;
  await (store.execute as (name: string, input: object) => Promise<unknown>)(damagingName, {});
  // The check sleeps until something happens.
  await fixture.publish([makeInput({ delay: 1e8 })], "other");
}

async function openWithAccounts(open: OpenStore): Promise<StoreFixture> {
  const fixture = await openWithAccount(open);
  await fixture.account("other");
  return fixture;
}

/** A self-check of a store. `passes` runs it as often as a server does in some minutes. */
function startCheck(fixture: StoreFixture) {
  const repaired: Repaired[] = [];
  let woken = 0;
  const task = createSelfCheckTask({
    store: fixture.store,
    clock: { now: () => fixture.clock.now, sleep: async () => undefined },
    sender: { couldSend: () => true, wake: () => void woken++ },
    onRepair: (one) => repaired.push(one),
  });
  task.onWork(() => undefined);
  const passes = async (count = 12): Promise<Repaired[]> => {
    for (let pass = 0; pass < count; pass++) {
      await task.run();
      fixture.clock.now += 1_000;
    }
    return repaired.splice(0);
  };
  return { passes, task, woken: () => woken };
}

const keyed = { flowControl: { key: "k", parallelism: 1, rate: null, period: null } };

async function readAudit({ store }: StoreFixture) {
  const page = await store.read.audit({
    account: "acc",
    filter: { by: ["server"] },
    cursor: null,
    count: 10,
  });
  return page.entries.map(({ what, object, by }) => ({ what, object, by }));
}

/** The self-check finds nothing in healthy rows, and repairs each planted fault. */
export function describeSelfCheck(open: OpenStore): void {
  describe("the self-check", () => {
    afterEach(() => void delete commandTable[damagingName]);

    test("repairs a waiter whose run has ended, and a wrong number of waiters", async () => {
      const fixture = await openWithAccounts(open);
      await fixture.publish([makeRunStart("wfr_1"), makeRunStart("wfr_2")]);
      for (const runId of ["wfr_1", "wfr_2"])
        await fixture.store.execute("wait", { account: "acc", runId, waiter: makeWaiter(1, { wait: 1e6 }) });
      const [lost, wrong] = [await readActiveRun(fixture, "wfr_1"), await readActiveRun(fixture, "wfr_2")];
      const { passes } = startCheck(fixture);
      expect(await passes()).toEqual([]);
      await damage(fixture, (draft) => {
        draft.drop("activeRuns", "acc", "wfr_1");
        const active = draft.get("activeRuns", "acc", "wfr_2");
        if (active) draft.put("activeRuns", { ...active, waiting: 7 });
      });
      expect(await passes()).toEqual([
        { what: "waiter", account: "acc", id: `${lost.id}/1` },
        { what: "waits", account: "acc", id: "wfr_2" },
      ]);
      expect(await fixture.store.read.listWaiters("acc", lost.id)).toEqual([]);
      expect((await fixture.store.read.activeRun("acc", "wfr_2"))?.active.waiting).toBe(1);
      expect(await fixture.store.read.listWaiters("acc", wrong.id)).toHaveLength(1);
      const by = { kind: "server", address: null };
      expect(await readAudit(fixture)).toEqual([
        { what: "repair.waits", object: "wfr_2", by },
        { what: "repair.waiter", object: `${lost.id}/1`, by },
      ]);
      expect(await passes()).toEqual([]);
    });

    test("sends the lost message of a run again, but not one that its endpoint has accepted", async () => {
      const fixture = await openWithAccounts(open);
      await fixture.publish([makeRunStart("wfr_1")]);
      for (const delivery of fixture.delivered()) await fixture.settle(delivery);
      await fixture.publish([makeRunStart("wfr_2")]);
      const [delivery] = fixture.delivered();
      const { passes } = startCheck(fixture);
      expect(await passes()).toEqual([]);
      const id = delivery?.message.id ?? "";
      fixture.forgetDelivery(id);
      await damage(fixture, (draft) => draft.drop("messages", "acc", id));
      expect(await passes()).toEqual([{ what: "lostMessage", account: "acc", id: "wfr_2" }]);
      const again = await fixture.claim();
      expect(again.map(({ message, attempt }) => [message.id, attempt])).toEqual([[id, 1]]);
      for (const one of again) await fixture.settle(one);
      expect(await passes()).toEqual([]);
    });

    test("corrects the counters of a key, so that its waitlist moves again", async () => {
      const fixture = await openWithAccounts(open);
      const running = await fixture.sent(keyed);
      const waiting = await fixture.send(keyed);
      const { passes } = startCheck(fixture);
      expect(await passes()).toEqual([]);
      await damage(fixture, (draft) => {
        const limiter = draft.get("limiters", "acc", "key:k");
        if (limiter) draft.put("limiters", { ...limiter, running: 4, waiting: 9, waitingDownstream: 2 });
      });
      await fixture.settle(running);
      expect(await fixture.claim()).toEqual([]);
      expect(await passes()).toEqual([{ what: "limiter", account: "acc", id: "key:k" }]);
      const [delivery] = await fixture.claim();
      expect(delivery?.message.id).toBe(waiting);
      if (delivery) await fixture.settle(delivery);
      expect(await passes()).toEqual([]);
      expect(fixture.faults).toEqual([]);
    });

    test("creates a missing limiter and a missing waitlist of a host", async () => {
      const fixture = await openWithAccounts(open);
      const running = await fixture.sent(keyed);
      await fixture.send(keyed);
      fixture.capacity = { total: 1, perHost: 1 };
      const held = await fixture.send({ url: "https://other.example/" });
      await fixture.claim();
      const { passes } = startCheck(fixture);
      expect(await passes()).toEqual([]);
      expect((await fixture.store.read.message("acc", held))?.state?.waitlist).toBe("capacity:other.example");
      await damage(fixture, (draft) => {
        draft.drop("limiters", "acc", "key:k");
        draft.drop("hostWaitlists", "acc", "other.example");
      });
      const found = await passes(24);
      expect(found).toEqual(
        expect.arrayContaining([
          { what: "limiter", account: "acc", id: "key:k" },
          { what: "hostWaitlist", account: "acc", id: "other.example" },
        ]),
      );
      await fixture.settle(running);
      fixture.capacity = { total: 10, perHost: 10 };
      fixture.clock.now += 10_000;
      expect(await fixture.claim()).toHaveLength(2);
      expect(await passes()).toEqual([]);
    });

    test("frees a slot of a queue that nothing holds", async () => {
      const fixture = await openWithAccounts(open);
      const running = await fixture.sent({ queue: "q" });
      const next = await fixture.send({ queue: "q" });
      const { passes } = startCheck(fixture);
      expect(await passes()).toEqual([]);
      const { id } = running.message;
      await damage(fixture, (draft) => {
        const slot = draft.get("queueSlots", "acc", id);
        if (slot) draft.put("queueSlots", { ...slot, holders: 3 });
      });
      await fixture.settle(running);
      expect(await fixture.claim()).toEqual([]);
      expect(await passes()).toEqual([{ what: "slot", account: "acc", id }]);
      expect((await fixture.claim()).map(({ message }) => message.id)).toEqual([next]);
      expect(await passes()).toEqual([]);
    });

    test("wakes a node that does not take what is due, once per time that it is missed", async () => {
      const fixture = await openWithAccounts(open);
      await fixture.send({ delay: 60_000 });
      const { passes, task, woken } = startCheck(fixture);
      expect(await passes()).toEqual([]);
      const dueAt = fixture.clock.now - 12_000 + 60_000;
      expect(await task.nextAt()).toBe(dueAt + 60_000);
      fixture.clock.now = dueAt + 60_001;
      expect(await passes(1)).toEqual([]);
      expect(await passes(1)).toEqual([{ what: "late", kind: "messages", dueAt }]);
      expect(woken()).toBe(1);
      for (const delivery of await fixture.claim()) await fixture.settle(delivery);
      expect(await passes()).toEqual([]);
      expect(woken()).toBe(1);
      const followUp = await task.nextAt();
      expect(followUp).toBeLessThanOrEqual(fixture.clock.now + 3_600_000);
      fixture.clock.now = followUp;
      expect(await passes()).toEqual([]);
      expect(await task.nextAt()).toBe(Infinity);
    });
  });
}
