import { describe, expect, test } from "vitest";
import { spans } from "../../../src/core/values/limits.ts";
import type { Delivery } from "../../../src/core/model/message.ts";
import { makeAccount, makeInput, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

const listIds = (deliveries: readonly Delivery[]): string[] => deliveries.map(({ message }) => message.id);

/** Publishes messages that find no hand, so that a claim makes them stand in line. Answers their ids. */
async function fillWaitlist(fixture: StoreFixture, count: number): Promise<string[]> {
  const capacity = fixture.capacity;
  fixture.capacity = { total: 0, perHost: 0 };
  const results = await fixture.publish(Array.from({ length: count }, () => makeInput()));
  const claimed = await fixture.claim();
  expect(claimed).toEqual([]);
  fixture.capacity = capacity;
  return results.flatMap((result) => ("messageId" in result ? [result.messageId] : []));
}

const readState = async (fixture: StoreFixture, id: string) => (await fixture.store.read.message("acc", id))?.state?.state;

/** Hands, and the lines of those that wait for one. */
export function describeWaitlists(open: OpenStore): void {
  describe("lines", () => {
    test("what finds no free hand for its host is held; other hosts go on", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      fixture.capacity = { total: 10, perHost: 1 };
      const running = await fixture.sent();
      const held = await fixture.send();
      const other = await fixture.send({ url: "https://two.example/" });
      expect(listIds(await fixture.claim())).toEqual([other]);
      expect((await fixture.store.read.message("acc", held))?.state).toMatchObject({ state: "held", dueAt: null, leasedBy: null });
      await fixture.settle(running);
      expect(listIds(fixture.delivered())).toEqual([held]);
      expect(await fixture.states(held)).toEqual(["CREATED", "ACTIVE"]);
    });

    test("hold back what is more than an account may have under way to one endpoint; other hosts, and other accounts, go on", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.store.execute("createAccount", makeAccount("other"));
      await fixture.store.execute("changeAccount", { account: "acc", change: { limits: { parallelism: 2 } } });
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
      for (const id of [elsewhere, ...ids]) expect(await fixture.states(id, ids.includes(id) ? "other" : "acc")).toContain("ACTIVE");
      fixture.delivered();
      if (running[0]) await fixture.settle(running[0]);
      expect(listIds(fixture.delivered())).toEqual([held]);
    });

    test("are served in the order of arrival, and newcomers stand behind", async () => {
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

    test("are looked at after a second, when hands came free elsewhere", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const ids = await fillWaitlist(fixture, 3);
      expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now + spans.waitlistCheck);
      fixture.clock.now += spans.waitlistCheck;
      expect(listIds(await fixture.claim())).toEqual(ids);
      expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now + spans.lease);
    });

    test("are due again when there is still no hand", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fillWaitlist(fixture, 2);
      fixture.capacity = { total: 0, perHost: 0 };
      fixture.clock.now += spans.waitlistCheck;
      expect(await fixture.claim()).toEqual([]);
      expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now + spans.waitlistCheck);
    });

    test("are due at once when they are woken, and hosts without a line are passed over", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const [first] = await fillWaitlist(fixture, 2);
      const host = (await fixture.store.read.message("acc", first ?? ""))?.state?.host ?? "";
      expect(await fixture.store.execute("wakeHostWaitlists", { account: "acc", hosts: [host, "none.example"] })).toEqual({ woken: 1 });
      expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now);
    });

    test("who comes to stand in line is not forgotten when a delivery of the host ends in the same batch", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      fixture.capacity = { total: 10, perHost: 1 };
      const running = await fixture.sent();
      const held = await fixture.send();
      // The hand is still taken when the batch begins, so neither of the two can serve it.
      const settle = fixture.store.execute("claim", { limit: 10 }).then(() => undefined);
      const report = fixture.store.execute("settle", { ...makeReport(running), status: 200 });
      await Promise.all([settle, report]);
      expect(await readState(fixture, held)).toBe("held");
      fixture.capacity = { total: 10, perHost: 10 };
      fixture.clock.now += spans.waitlistCheck;
      expect(listIds(await fixture.claim())).toEqual([held]);
    });

    test("nobody is forgotten when several deliveries end at once and more stand in line than are looked at", async () => {
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

    test("whoever is cancelled leaves the line", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const [one, two] = await fillWaitlist(fixture, 2);
      await fixture.store.execute("cancel", { account: "acc", messageIds: [one ?? ""] });
      fixture.clock.now += spans.waitlistCheck;
      expect(listIds(await fixture.claim())).toEqual([two]);
      expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now + spans.lease);
    });

    test("a line whose last message was cancelled ends", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const messageIds = await fillWaitlist(fixture, 2);
      await fixture.store.execute("cancel", { account: "acc", messageIds });
      fixture.clock.now += spans.waitlistCheck;
      expect(await fixture.claim()).toEqual([]);
      expect(await fixture.store.nextDueAt()).toBeNull();
      await fixture.sent();
    });

    test("of two accounts to one host are two lines", async () => {
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
