import { describe, expect, test } from "vitest";
import { toAlertId } from "../../../src/operations/alerts/pickAlerts.ts";
import type { AlertNotice } from "../../../src/operations/alerts/alert.ts";
import type { OpenStore } from "../../engine/store/storeFixture.ts";
import { makeAccount, StoreFixture } from "../../engine/store/storeFixture.ts";

const alerts = { url: "https://ops.example/hook", after: 300_000, events: ["host.failing"] } as const;
const notice: AlertNotice = { event: "host.failing", subject: "a.example", text: "t", count: 2 };
const minute = 60_000;
const none = { noted: 0, dropped: 0 };
const one = { noted: 1, dropped: 0 };

const list = (fixture: StoreFixture) =>
  fixture.store.read.alerts({ account: "acc", descending: true, limit: 10 });

/** The alerts of accounts. */
export function describeAlerts(open: OpenStore): void {
  describe("alerts", () => {
    test("are recorded once in an hour, and only if the account wants them", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { now } = fixture.clock;
      const note = (at = now) =>
        fixture.store.execute("noteAlerts", { account: "acc", notices: [notice], dropped: [], now: at });
      expect(await note()).toEqual(none);
      await fixture.store.execute("setAlerts", { account: "acc", alerts });
      expect((await fixture.store.read.account("acc"))?.alerts).toEqual(alerts);
      expect(await Promise.all([note(), note()])).toEqual(expect.arrayContaining([none, one]));
      expect(await list(fixture)).toMatchObject([
        { ...notice, createdAt: now, dueAt: now, state: "pending" },
      ]);
      expect(await note(now + 60 * minute)).toEqual(one);
      expect((await list(fixture)).map(({ createdAt }) => createdAt)).toEqual([now + 60 * minute, now]);
      const ids = (await list(fixture)).map(({ id }) => id);
      const remove = { account: "acc", ids: [...ids, "other"], reason: "request" } as const;
      expect(await fixture.store.execute("removeAlerts", remove)).toEqual({ removed: 2 });
      expect(await fixture.store.execute("setAlerts", { account: "acc", alerts: null })).toMatchObject({
        wasSet: true,
      });
      expect(await fixture.store.read.account("acc")).not.toHaveProperty("alerts");
    });

    test("are sent by one node at a time, until they were accepted", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.store.execute("setAlerts", { account: "acc", alerts });
      await fixture.store.execute("noteAlerts", {
        account: "acc",
        notices: [notice],
        dropped: [],
        now: fixture.clock.now,
      });
      const [{ id } = { id: "" }] = await list(fixture);
      const take = () => fixture.store.execute("takeAlert", { account: "acc", id });
      const end = (attempt: number, status: number | null) =>
        fixture.store.execute("noteAlertOutcome", { account: "acc", id, attempt, status, error: null });
      const taken = await Promise.all([take(), take()]);
      expect(taken.filter((one) => one !== null)).toMatchObject([{ attempts: 1 }]);
      // Its node has died.
      fixture.clock.now += minute;
      expect(await take()).toMatchObject({ attempts: 2 });
      expect(await end(1, 200), "too late").toBeNull();
      expect(await end(2, 500)).toEqual({ state: "pending" });
      expect(await take()).toBeNull();
      fixture.clock.now += minute;
      expect(await take()).toMatchObject({ attempts: 3 });
      expect(await end(3, 204)).toEqual({ state: "sent" });
      fixture.clock.now += 60 * minute;
      expect(await take()).toBeNull();
      expect(await list(fixture)).toMatchObject([{ state: "sent", status: 204, dueAt: null }]);
    });

    test("are counted if they are dropped, once in an hour by all nodes together", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.store.execute("setAlerts", { account: "acc", alerts });
      const now = fixture.clock.now;
      const id = toAlertId(notice, now);
      const note = (notices: AlertNotice[], dropped: string[]) =>
        fixture.store.execute("noteAlerts", { account: "acc", notices, dropped, now });
      const results = await Promise.all([note([], ["a", "b"]), note([], ["b", "c"])]);
      expect(results.reduce((sum, { dropped }) => sum + dropped, 0)).toBe(3);
      expect(await note([], ["a"])).toEqual(none);
      expect(await list(fixture)).toMatchObject([{ event: "alerts.dropped", count: 3, state: "pending" }]);
      // Another node has found room for an alert that one has dropped, or the other way round.
      expect(await note([], [id])).toEqual({ noted: 0, dropped: 1 });
      expect(await note([notice], [])).toEqual(none);
      const other = { ...notice, subject: "b.example" };
      expect(await note([other], [])).toEqual(one);
      expect(await note([], [toAlertId(other, now)])).toEqual(none);
      // It was never sent, for example because all deliveries are held.
      fixture.clock.now += 60 * minute;
      const removed = { account: "acc", ids: [toAlertId(other, now)], reason: "age" } as const;
      expect(await fixture.store.execute("removeAlerts", removed)).toEqual({ removed: 1 });
      expect((await list(fixture)).map(({ event, count }) => [event, count])).toEqual([
        ["alerts.dropped", 1],
        ["alerts.dropped", 4],
      ]);
    });

    test("of the server have a setting, and no account sees them", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.store.execute("setAlerts", { account: "acc", alerts });
      const { store } = fixture;
      const note = () =>
        store.execute("noteAlerts", { account: "", notices: [notice], dropped: [], now: fixture.clock.now });
      const listServer = () => store.read.alerts({ account: "", limit: 10 });
      expect(await store.read.serverAlerts()).toBeNull();
      expect(await note()).toEqual(none);
      const setting = { url: "https://ops.example/", events: ["disk.low"], secret: "whsec_s" } as const;
      expect(await store.execute("setServerAlerts", { alerts: setting })).toEqual({ wasSet: false });
      expect(await store.read.serverAlerts()).toEqual(setting);
      expect(await store.execute("rewrite", { accounts: [], sources: [], settings: ["alerts"] })).toEqual({
        rewritten: 1,
      });
      expect(await store.read.serverAlerts()).toEqual(setting);
      expect(await note()).toEqual(one);
      expect(await note()).toEqual(none);
      const [{ id } = { id: "" }] = await listServer();
      expect(await store.execute("takeAlert", { account: "acc", id })).toBeNull();
      expect(await store.execute("takeAlert", { account: "", id })).toMatchObject({ attempts: 1 });
      const outcome = { account: "", id, attempt: 1, status: 200, error: null };
      expect(await store.execute("noteAlertOutcome", outcome)).toEqual({ state: "sent" });
      expect(await list(fixture)).toEqual([]);
      expect(await store.execute("removeAlerts", { account: "", ids: [id], reason: "request" })).toEqual({
        removed: 1,
      });
      expect(await store.execute("setServerAlerts", { alerts: null })).toEqual({ wasSet: true });
      expect(await store.execute("setServerAlerts", { alerts: null })).toEqual({ wasSet: false });
      expect(await store.read.serverAlerts()).toBeNull();
    });

    test("have the facts of their account alone", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.store.execute("createAccount", makeAccount("other"));
      await fixture.publishFailing({ url: "https://bad.example/x" });
      const facts = await fixture.store.read.alertFacts("acc", fixture.clock.now);
      expect(facts).toMatchObject({
        deadLetters: [{ url: "https://bad.example/x" }],
      });
      expect(facts.log.some(({ attempt }) => attempt?.host === "bad.example")).toBe(true);
      const others = await fixture.store.read.alertFacts("other", fixture.clock.now);
      expect(others).toEqual({ deadLetters: [], log: [] });
      const later = await fixture.store.read.alertFacts("acc", fixture.clock.now + 61 * minute);
      expect(later.deadLetters).toEqual([]);
    });
  });
}
