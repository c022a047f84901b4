import { describe, expect, test } from "vitest";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import { makeAccount, makeInput, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

const listIds = (deliveries: readonly Delivery[]): string[] => deliveries.map(({ message }) => message.id);

/** Publishes messages without capacity, so that a claim holds them. Returns their ids. */
async function fillWaitlist(fixture: StoreFixture, count: number): Promise<string[]> {
  const capacity = fixture.capacity;
  fixture.capacity = { total: 0, perHost: 0 };
  const results = await fixture.publish(Array.from({ length: count }, () => makeInput()));
  const claimed = await fixture.claim();
  expect(claimed).toEqual([]);
  fixture.capacity = capacity;
  return results.flatMap((result) => ("messageId" in result ? [result.messageId] : []));
}

const readState = async (fixture: StoreFixture, id: string) =>
  (await fixture.store.read.message("acc", id))?.state?.state;

/** Delivery capacity, and the waitlists of messages that wait for it. */
export function describeWaitlists(open: OpenStore): void {
  describe("waitlists", () => {
    test("hold messages without capacity for their host, and other hosts continue", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      fixture.capacity = { total: 10, perHost: 1 };
      const running = await fixture.sent();
      const held = await fixture.send();
      const other = await fixture.send({ url: "https://two.example/" });
      expect(listIds(await fixture.claim())).toEqual([other]);
      expect((await fixture.store.read.message("acc", held))?.state).toMatchObject({
        state: "held",
        dueAt: null,
        leasedBy: null,
      });
      await fixture.settle(running);
      expect(listIds(fixture.delivered())).toEqual([held]);
      expect(await fixture.states(held)).toEqual(["CREATED", "ACTIVE"]);
    });

    test("hold messages above an account's endpoint limit, but not other hosts or accounts", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.store.execute("createAccount", makeAccount("other"));
      await fixture.store.execute("changeAccount", {
        account: "acc",
        change: { limits: { parallelism: 2 } },
      });
      const running = [await fixture.sent(), await fixture.sent()];
      const held = await fixture.send();
      const elsewhere = await fixture.send({ url: "https://two.example/" });
      const others = await fixture.publish([makeInput(), makeInput(), makeInput()], "other");
      await fixture.claim();
      expect((await fixture.store.read.message("acc", held))?.state).toMatchObject({
        state: "held",
        waitlist: "endpoint:https://one.example/hook",
      });
      const ids = others.flatMap((result) => ("messageId" in result ? [result.messageId] : []));
      for (const id of [elsewhere, ...ids])
        expect(await fixture.states(id, ids.includes(id) ? "other" : "acc")).toContain("ACTIVE");
      fixture.delivered();
      if (running[0]) await fixture.settle(running[0]);
      expect(listIds(fixture.delivered())).toEqual([held]);
    });

    test("are served in order of acceptance, and new messages wait behind", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      fixture.capacity = { total: 10, perHost: 1 };
      const running = await fixture.sent();
      const one = await fixture.send();
      const two = await fixture.send();
      await fixture.claim();
      await fixture.settle(running);
      const [next] = fixture.delivered();
      const newcomer = await fixture.send();
      await fixture.claim();
      expect(next?.message.id).toBe(one);
      if (next) await fixture.settle(next);
      const [second] = fixture.delivered();
      if (second) await fixture.settle(second);
      expect(listIds([...(second ? [second] : []), ...fixture.delivered()])).toEqual([two, newcomer]);
    });

    test("are checked after a second for capacity that became free elsewhere", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const ids = await fillWaitlist(fixture, 3);
      expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now + spans.waitlistCheck);
      fixture.clock.now += spans.waitlistCheck;
      expect(listIds(await fixture.claim())).toEqual(ids);
      expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now + spans.lease);
    });

    test("are due again if there is still no capacity", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fillWaitlist(fixture, 2);
      fixture.capacity = { total: 0, perHost: 0 };
      fixture.clock.now += spans.waitlistCheck;
      expect(await fixture.claim()).toEqual([]);
      expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now + spans.waitlistCheck);
    });

    test("stay due, and are not written, if a claim takes none of them", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const ids = await fillWaitlist(fixture, 2);
      fixture.clock.now += spans.waitlistCheck;
      const dueAt = fixture.clock.now;
      fixture.clock.now += 60_000;
      const { more } = await fixture.store.execute("claim", { limit: 10, hostWaitlists: 0, heads: 10 });
      expect([more, fixture.delivered()]).toEqual([false, []]);
      expect(await fixture.store.read.oldestDue()).toMatchObject({ hostWaitlists: dueAt, messages: null });
      expect(listIds(await fixture.claim())).toEqual(ids);
    });

    test("are due at once when they are woken, and hosts without a waitlist are skipped", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const [first] = await fillWaitlist(fixture, 2);
      const host = (await fixture.store.read.message("acc", first ?? ""))?.state?.host ?? "";
      expect(
        await fixture.store.execute("wakeHostWaitlists", { account: "acc", hosts: [host, "none.example"] }),
      ).toEqual({ woken: 1 });
      expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now);
    });

    test("keep a message that is held while a delivery to its host ends in the same batch", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      fixture.capacity = { total: 10, perHost: 1 };
      const running = await fixture.sent();
      const held = await fixture.send();
      // The capacity is still in use when the batch begins, so neither command can use it.
      const settle = fixture.store.execute("claim", { limit: 10 }).then(() => undefined);
      const report = fixture.store.execute("settle", { ...makeReport(running), status: 200 });
      await Promise.all([settle, report]);
      expect(await readState(fixture, held)).toBe("held");
      fixture.capacity = { total: 10, perHost: 10 };
      fixture.clock.now += spans.waitlistCheck;
      expect(listIds(await fixture.claim())).toEqual([held]);
    });

    test("keep all messages if several deliveries end at once and more wait than are read", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const running = [await fixture.sent(), await fixture.sent()];
      const ids = await fillWaitlist(fixture, 30);
      await Promise.all(running.map((delivery) => fixture.settle(delivery)));
      const sent = listIds(fixture.delivered());
      expect(sent.length).toBeGreaterThan(0);
      for (let turn = 0; turn < 10 && sent.length < ids.length; turn++) {
        fixture.clock.now = Math.max(fixture.clock.now, (await fixture.store.nextDueAt()) ?? 0);
        sent.push(...listIds(await fixture.claim()));
      }
      expect(sent).toEqual(ids);
    });

    test("lose a message that is cancelled", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const [one, two] = await fillWaitlist(fixture, 2);
      await fixture.store.execute("cancel", { account: "acc", messageIds: [one ?? ""] });
      fixture.clock.now += spans.waitlistCheck;
      expect(listIds(await fixture.claim())).toEqual([two]);
      expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now + spans.lease);
    });

    test("end when their last message is cancelled", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const messageIds = await fillWaitlist(fixture, 2);
      await fixture.store.execute("cancel", { account: "acc", messageIds });
      fixture.clock.now += spans.waitlistCheck;
      expect(await fixture.claim()).toEqual([]);
      expect(await fixture.store.nextDueAt()).toBeNull();
      await fixture.sent();
    });

    test("are separate for two accounts with one host", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.account("b");
      await fillWaitlist(fixture, 1);
      await fixture.sent({}, "b");
      fixture.clock.now += spans.waitlistCheck;
      expect(await fixture.claim()).toMatchObject([{ message: { account: "acc" } }]);
    });
  });
}

const makeReport = ({ message, attempt }: Delivery) => ({
  account: message.account,
  messageId: message.id,
  host: "one.example",
  attempt,
  headers: [],
  body: new Uint8Array(0),
  error: null,
  took: 1,
});
