import { describe, expect, test } from "vitest";
import type { UnfinishedFilter } from "../../../../src/engine/core/explain/listedState.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import { makeAccount, makeInput, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

type Query = Parameters<Store["read"]["listUnfinished"]>[0];
type Page = Awaited<ReturnType<Store["read"]["listUnfinished"]>>;

const makeQuery = (overrides: Partial<Query>): Query => ({
  account: "acc",
  filter: {},
  sort: "created",
  order: "earliestFirst",
  cursor: null,
  count: 100,
  ...overrides,
});
const listLabels = ({ entries }: Page): (string | undefined)[] =>
  entries.map(({ message }) => message.labels[0]);

/** Returns the first labels of all pages. */
async function readAll(fixture: StoreFixture, overrides: Partial<Query>): Promise<(string | undefined)[]> {
  const labels: (string | undefined)[] = [];
  let cursor: string | null = null;
  for (let page = 0; page < 50; page++) {
    const found: Page = await fixture.store.read.listUnfinished(makeQuery({ ...overrides, cursor }));
    labels.push(...listLabels(found));
    if (found.cursor === null) return labels;
    cursor = found.cursor;
  }
  throw new Error("the list does not end");
}

/** Publishes messages that get into every state. Their first labels name them, in the order of acceptance. */
async function createEveryState(fixture: StoreFixture): Promise<number> {
  await fixture.account();
  await fixture.store.execute("createAccount", makeAccount("other"));
  const start = fixture.clock.now;
  const key = (name: string) => ({ key: name, parallelism: 1, rate: null, period: null });
  await fixture.send({ labels: ["later", "blue"], delay: 90_000, scheduleId: "scd_1" });
  fixture.clock.now += 1_000;
  await fixture.store.execute("addEndpoints", {
    account: "acc",
    name: "g",
    endpoints: [{ name: null, url: "https://two.example/a" }],
  });
  await fixture.publish([makeInput({ labels: ["soon"], delay: 30_000, url: "", group: "g" })]);
  fixture.clock.now += 1_000;
  const retried = await fixture.sent({
    labels: ["retried", "blue"],
    retryDelay: "60000",
    url: "https://two.example/b",
  });
  await fixture.settle(retried, { status: 503 });
  fixture.clock.now += 1_000;
  await fixture.sent({ labels: ["sending"], flowControl: key("k") });
  await fixture.send({ labels: ["at-key"], flowControl: key("k") });
  await fixture.sent({ labels: ["in-queue"], queue: "q" });
  await fixture.send({ labels: ["at-queue"], queue: "q" });
  await fixture.store.execute("upsertQueue", { account: "acc", name: "p", parallelism: 1, paused: true });
  await fixture.send({ labels: ["at-paused"], queue: "p" });
  fixture.capacity = { total: 0, perHost: 0 };
  await fixture.send({ labels: ["at-capacity"], url: "https://full.example/" });
  await fixture.claim();
  await fixture.send({ labels: ["foreign"], delay: 30_000 }, "other");
  return start;
}

const all = [
  "later",
  "soon",
  "retried",
  "sending",
  "at-key",
  "in-queue",
  "at-queue",
  "at-paused",
  "at-capacity",
];

/** Lists of unfinished messages. */
export function describeUnfinished(open: OpenStore): void {
  describe("unfinished messages", () => {
    test("are listed by every filter, alone and together", async () => {
      const fixture = await StoreFixture.open(open);
      const start = await createEveryState(fixture);
      const cases: [UnfinishedFilter, string[]][] = [
        [{}, all],
        [{ listedStates: ["pending"] }, ["later", "soon"]],
        [{ listedStates: ["retrying"] }, ["retried"]],
        [{ listedStates: ["delivering"] }, ["sending", "in-queue"]],
        [{ listedStates: ["held"] }, ["at-key", "at-queue", "at-capacity"]],
        [{ listedStates: ["paused"] }, ["at-paused"]],
        [
          { listedStates: ["paused", "retrying", "delivering"] },
          ["retried", "sending", "in-queue", "at-paused"],
        ],
        [{ gates: ["queue"] }, ["at-queue", "at-paused"]],
        [{ gates: ["key", "capacity"] }, ["at-key", "at-capacity"]],
        [{ gates: ["account", "endpoint"] }, []],
        [{ gates: ["queue"], listedStates: ["held"] }, ["at-queue"]],
        [{ urls: ["https://two.example/a"] }, ["soon"]],
        [{ hosts: ["two.example", "full.example"] }, ["soon", "retried", "at-capacity"]],
        // Those in flight are among the others.
        [{ hosts: ["one.example"] }, ["later", "sending", "at-key", "in-queue", "at-queue", "at-paused"]],
        [{ paths: ["/b"] }, ["retried"]],
        [{ queueNames: ["q"] }, ["in-queue", "at-queue"]],
        [{ flowControlKeys: ["k"] }, ["sending", "at-key"]],
        [{ labels: ["blue"] }, ["later", "retried"]],
        [{ labels: ["blue"], listedStates: ["retrying"] }, ["retried"]],
        [{ topicNames: ["g"] }, ["soon"]],
        [{ scheduleIds: ["scd_1"] }, ["later"]],
        [{ callerIps: ["192.0.2.1"] }, all],
        [{ callerIps: ["192.0.2.9"] }, []],
        [{ runs: [] }, []],
        [{ from: start + 1_000, to: start + 2_000 }, ["soon", "retried"]],
        [{ dueFrom: start + 31_000, dueTo: start + 62_000 }, ["soon", "retried"]],
        [{ dueTo: start + 31_000 }, ["soon"]],
        [{ minAttempts: 1 }, ["retried"]],
        [{ minAttempts: 2 }, []],
      ];
      for (const [filter, expected] of cases) {
        const page = await fixture.store.read.listUnfinished(makeQuery({ filter }));
        expect([filter, listLabels(page), page.cursor]).toEqual([filter, expected, null]);
        expect([filter, page.total]).toEqual([filter, { count: expected.length, more: false }]);
        const inDueOrder = ["soon", "retried", "later"].filter((label) => expected.includes(label));
        for (const count of [1, 2, 100]) {
          const paged = { filter, count };
          expect(await readAll(fixture, paged)).toEqual(expected);
          expect(await readAll(fixture, { ...paged, order: "latestFirst" })).toEqual(expected.toReversed());
          expect([filter, await readAll(fixture, { ...paged, sort: "due" })]).toEqual([filter, inDueOrder]);
          expect(await readAll(fixture, { ...paged, sort: "due", order: "latestFirst" })).toEqual(
            inDueOrder.toReversed(),
          );
        }
      }
    });

    test("have their state, their due time, their last result and what they wait for", async () => {
      const fixture = await StoreFixture.open(open);
      const start = await createEveryState(fixture);
      const { entries } = await fixture.store.read.listUnfinished(makeQuery({}));
      expect(entries.map(({ listedState }) => listedState)).toEqual([
        "pending",
        "pending",
        "retrying",
        "delivering",
        "held",
        "delivering",
        "held",
        "paused",
        "held",
      ]);
      expect(entries.map(({ dueAt }) => dueAt && dueAt - start).slice(0, 4)).toEqual([
        90_000,
        31_000,
        62_000,
        null,
      ]);
      const [, , retried, sending, atKey, , atQueue] = entries;
      expect(retried?.waitState.lastResult).toMatchObject({ status: 503, error: null });
      expect(sending?.waitState.lastResult).toBeNull();
      expect(atKey?.waitState).toMatchObject({ key: { id: "key:k", running: 1 }, waitingAhead: null });
      expect(atQueue?.waitState).toMatchObject({ queue: { id: "queue:q", running: 1 }, key: null });
    });

    test("that are cancelled or finished are not listed", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const sent = await fixture.sent({ labels: ["sent"] });
      const cancelled = await fixture.sent({ labels: ["cancelled"] });
      await fixture.send({ labels: ["left"], delay: 1_000 });
      await fixture.store.execute("cancel", { account: "acc", messageIds: [cancelled.message.id] });
      await fixture.settle(sent);
      expect(await readAll(fixture, {})).toEqual(["left"]);
      expect(await readAll(fixture, { filter: { listedStates: ["delivering"] } })).toEqual([]);
    });

    test("keep their place while others come and go between two pages", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const send = (label: string, delay: number) => fixture.send({ labels: [label], delay });
      const ids = [
        await send("a", 5_000),
        await send("b", 4_000),
        await send("c", 3_000),
        await send("d", 2_000),
      ];
      for (const sort of ["created", "due"] as const) {
        const first = await fixture.store.read.listUnfinished(makeQuery({ sort, count: 2 }));
        await fixture.store.execute("cancel", {
          account: "acc",
          messageIds: [first.entries[1]?.state.id ?? ""],
        });
        const second = await fixture.store.read.listUnfinished(
          makeQuery({ sort, count: 2, cursor: first.cursor }),
        );
        const rest = sort === "created" ? ids.slice(2) : [ids[0]];
        expect(second.entries.map(({ state }) => state.id)).toEqual(rest);
      }
    });

    test.each(["", "x", "msg_", "1-msg_1", "msg_1'--", "-1-msg_1", "99999999999999999-msg_1", "msg_\0"])(
      "refuse the cursor %j",
      async (cursor) => {
        const fixture = await StoreFixture.open(open);
        await fixture.account();
        await expect(fixture.store.read.listUnfinished(makeQuery({ cursor }))).rejects.toThrow(
          /^cursor: unknown/,
        );
      },
    );

    test("of another account stay hidden, whatever the cursor", async () => {
      const fixture = await StoreFixture.open(open);
      await createEveryState(fixture);
      const own = await fixture.store.read.listUnfinished(makeQuery({ count: 1 }));
      const seen = await fixture.store.read.listUnfinished(
        makeQuery({ account: "other", cursor: own.cursor }),
      );
      expect(listLabels(seen)).toEqual(["foreign"]);
      for (const filter of [
        { listedStates: ["delivering"] },
        { gates: ["queue"] },
        { minAttempts: 1 },
      ] as const)
        expect(await readAll(fixture, { account: "other", filter })).toEqual([]);
    });
  });
}
