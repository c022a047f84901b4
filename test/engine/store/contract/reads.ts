import { describe, expect, test } from "vitest";
import type { Filter } from "../../../../src/engine/core/search/filter.ts";
import type { LogEntry } from "../../../../src/engine/store/queries/logs.ts";
import {
  makeCallback,
  makeOldestFirstQuery,
  makeLogQuery,
  makeInput,
  listStates,
  StoreFixture,
} from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";
import { makeDeletion } from "../../../makeDeletion.ts";

const formatEvent = ({ message, state }: LogEntry): string => `${message.labels[0]} ${state}`;

/** Returns every page of the log, and runs a function between two pages. */
async function readAllPages(
  fixture: StoreFixture,
  query: Parameters<typeof makeLogQuery>[0],
  between: () => Promise<unknown> = async () => undefined,
) {
  const events: LogEntry[] = [];
  let cursor: string | null = null;
  for (let page = 0; page < 100; page++) {
    const found = await fixture.store.read.log(makeLogQuery({ ...query, cursor }));
    events.push(...found.events);
    if (found.cursor === null) return events;
    cursor = found.cursor;
    await between();
  }
  throw new Error("the list does not end");
}

/** Publishes three messages with different outcomes, one second apart. */
async function createThreeOutcomes(fixture: StoreFixture) {
  await fixture.account();
  const start = fixture.clock.now;
  const one = await fixture.sent({ labels: ["one"], url: "https://one.example/a" });
  fixture.clock.now = start + 1_000;
  const two = await fixture.sent({
    labels: ["two"],
    url: "https://two.example:8443/b?q=1",
    retries: 0,
    callerIp: "192.0.2.2",
  });
  fixture.clock.now = start + 2_000;
  await fixture.settle(one);
  const three = await fixture.send({ labels: ["three"], url: "https://one.example/b", delay: 60_000 });
  fixture.clock.now = start + 3_000;
  await fixture.settle(two, { status: 418 });
  return { start, one: one.message.id, two: two.message.id, three };
}

/** Queries of a store. */
export function describeReads(open: OpenStore): void {
  describe("the log", () => {
    test("lists every change of state in order of time, in both directions", async () => {
      const fixture = await StoreFixture.open(open);
      await createThreeOutcomes(fixture);
      const { events } = await fixture.store.read.log(makeOldestFirstQuery());
      const expected = [
        "one CREATED",
        "one ACTIVE",
        "two CREATED",
        "two ACTIVE",
        "three CREATED",
        "one DELIVERED",
        "two ERROR",
        "two FAILED",
      ];
      expect(events.map(formatEvent)).toEqual(expected);
      expect(await fixture.store.read.newestLogTime(makeLogQuery().account)).toBe(events.at(-1)?.time);
      expect(await fixture.store.read.newestLogTime("acc_other")).toBe(0);
      expect((await fixture.store.read.log(makeLogQuery())).events.map(formatEvent)).toEqual(
        expected.toReversed(),
      );
      expect(events.map(({ time }) => time)).toEqual(
        events.map(({ time }) => time).toSorted((a, b) => a - b),
      );
    });

    test.each([1, 2, 3])("has pages of %i without gaps or duplicates, in both directions", async (count) => {
      const fixture = await StoreFixture.open(open);
      await createThreeOutcomes(fixture);
      const { events } = await fixture.store.read.log(makeOldestFirstQuery());
      expect(await readAllPages(fixture, { count, order: "earliestFirst" })).toEqual(events);
      expect(await readAllPages(fixture, { count })).toEqual(events.toReversed());
    });

    test("has stable pages while newer entries arrive", async () => {
      const fixture = await StoreFixture.open(open);
      await createThreeOutcomes(fixture);
      const before = (await fixture.store.read.log(makeLogQuery())).events;
      const onTheWay = await readAllPages(fixture, { count: 2 }, async () => {
        fixture.clock.now += 1;
        await fixture.settle(await fixture.sent());
      });
      expect(onTheWay).toEqual(before);
    });

    test("keeps the order of entries of one millisecond across pages", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      for (let index = 0; index < 5; index++)
        await fixture.settle(await fixture.sent({ labels: [String(index)] }));
      const all = (await fixture.store.read.log(makeOldestFirstQuery())).events;
      expect(all).toHaveLength(15);
      expect(await readAllPages(fixture, { count: 1, order: "earliestFirst" })).toEqual(all);
      expect(await readAllPages(fixture, { count: 4 })).toEqual(all.toReversed());
    });

    test("has filters that can be combined", async () => {
      const fixture = await StoreFixture.open(open);
      const { start, one, two } = await createThreeOutcomes(fixture);
      const filtered = async (filter: Parameters<typeof makeLogQuery>[0]) =>
        listStates(await fixture.store.read.log(makeOldestFirstQuery(filter)));
      expect(await filtered({ filter: { messageIds: [two, one] } })).toEqual([
        "CREATED",
        "ACTIVE",
        "CREATED",
        "ACTIVE",
        "DELIVERED",
        "ERROR",
        "FAILED",
      ]);
      expect(await filtered({ filter: { messageIds: [one], states: ["ACTIVE"] } })).toEqual(["ACTIVE"]);
      expect(await filtered({ filter: { states: ["DELIVERED", "FAILED"] } })).toEqual([
        "DELIVERED",
        "FAILED",
      ]);
      expect(await filtered({ filter: { labels: ["three", "none"] } })).toEqual(["CREATED"]);
      expect(await filtered({ filter: { hosts: ["TWO.example:8443"], states: ["ERROR"] } })).toEqual([
        "ERROR",
      ]);
      expect(await filtered({ filter: { paths: ["/b"], callerIps: ["192.0.2.1"] } })).toEqual(["CREATED"]);
      expect(await filtered({ filter: { urls: ["https://one.example/a"] } })).toEqual([
        "CREATED",
        "ACTIVE",
        "DELIVERED",
      ]);
      expect(await filtered({ filter: { from: start + 2_000, to: start + 2_000 } })).toEqual([
        "CREATED",
        "DELIVERED",
      ]);
      expect(await filtered({ filter: { to: start } })).toEqual(["CREATED", "ACTIVE"]);
      expect(await filtered({ filter: { from: start + 3_000 } })).toEqual(["ERROR", "FAILED"]);
      expect(await filtered({ filter: { queueNames: ["any"] } })).toEqual([]);
    });

    test("refuses a cursor that it has not returned", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      for (const cursor of ["", "1-", "x-00-y", "1-20-msg_1", "\0"]) {
        await expect(fixture.store.read.log(makeLogQuery({ cursor }))).rejects.toMatchObject({
          name: "Refusal",
          code: "invalid",
        });
      }
    });
  });

  describe("dead letters", () => {
    test("are listed in both directions, page by page, with filters", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const start = fixture.clock.now;
      const ids: string[] = [];
      for (const label of ["a", "b", "a"]) {
        ids.push((await fixture.publishFailing({ labels: [label] })).dlqId);
        fixture.clock.now += 1_000;
      }
      const list = async (over: Parameters<typeof makeLogQuery>[0]) => {
        const { entries, cursor } = await fixture.store.read.deadLetters(makeLogQuery(over));
        return { ids: entries.map(({ deadLetter: input }) => input.id), cursor };
      };
      expect(await list({})).toEqual({ ids: ids.toReversed(), cursor: null });
      expect(await list({ order: "earliestFirst" })).toEqual({ ids, cursor: null });
      const first = await list({ count: 2 });
      expect(first.ids).toEqual([ids[2], ids[1]]);
      await fixture.publishFailing();
      expect(await list({ count: 2, cursor: first.cursor })).toEqual({ ids: [ids[0]], cursor: null });
      expect((await list({ filter: { labels: ["a"] } })).ids).toEqual([ids[2], ids[0]]);
      expect((await list({ filter: { responseStatuses: [404] } })).ids).toEqual([]);
      expect((await list({ filter: { from: start + 1_000, to: start + 1_999 } })).ids).toEqual([ids[1]]);
      expect(
        (await list({ filter: { dlqIds: [ids[0] ?? "", ids[1] ?? "", "none"], labels: ["b"] } })).ids,
      ).toEqual([ids[1]]);
      const chosen = await list({ filter: { dlqIds: ids }, count: 1, order: "earliestFirst" });
      expect(
        await list({ filter: { dlqIds: ids }, count: 9, order: "earliestFirst", cursor: chosen.cursor }),
      ).toEqual({
        ids: ids.slice(1),
        cursor: null,
      });
    });
  });

  describe("unfinished messages", () => {
    test("are listed oldest first, page by page, with filters", async () => {
      const fixture = await StoreFixture.open(open);
      const { three, two } = await createThreeOutcomes(fixture);
      const more = [await fixture.send({ labels: ["x"] }), await fixture.send({ labels: ["x"] })];
      const list = (filter: object, count = 9, cursor: string | null = null) =>
        fixture.store.read.unfinished({ account: "acc", filter, count, cursor });
      expect((await list({})).messageIds).toEqual([three, ...more]);
      const first = await list({}, 2);
      expect(first.messageIds).toEqual([three, more[0]]);
      expect(first.cursor).not.toBeNull();
      expect((await list({}, 2, first.cursor)).messageIds).toEqual([more[1]]);
      expect((await list({ labels: ["x"] })).messageIds).toEqual(more);
      expect((await list({ messageIds: [...more, two, "none"] })).messageIds).toEqual(more);
      expect((await list({ messageIds: [...more, three], labels: ["three"] })).messageIds).toEqual([three]);
    });
  });

  describe("tags", () => {
    /**
     * Messages that can each be found by a different property. Half of them have failed, and one was
     * delivered.
     */
    async function several(fixture: StoreFixture) {
      await fixture.account();
      const ids: Record<string, string> = {};
      const inputs = {
        label: { labels: ["a b", "a"] },
        queue: { queue: "q" },
        key: { flowControl: { key: "k", parallelism: 5, rate: null, period: null } },
        schedule: { scheduleId: "scd_1" },
        plain: { url: "https://two.example/", callerIp: "192.0.2.9" },
      };
      for (const [name, input] of Object.entries(inputs)) {
        const { dlqId } = await fixture.publishFailing(input);
        ids[dlqId] = `${name} failed`;
        fixture.clock.now += 1;
        ids[await fixture.send({ ...input, delay: 60_000 })] = `${name} waits`;
        fixture.clock.now += 1;
        await fixture.settle(await fixture.sent(input));
      }
      return (id: string) => ids[id] ?? "?";
    }

    const filters: [Filter, string[]][] = [
      [{ labels: ["a b"] }, ["label"]],
      [{ labels: ["a", "a b", "none"] }, ["label"]],
      [{ labels: ["a"], queueNames: ["q"] }, []],
      [{ queueNames: ["q"] }, ["queue"]],
      [{ flowControlKeys: ["k", "x"] }, ["key"]],
      [{ scheduleIds: ["scd_1"], urls: ["https://one.example/hook"] }, ["schedule"]],
      [{ topicNames: ["g"] }, []],
      [{ urls: ["https://two.example/"] }, ["plain"]],
      [{ callerIps: ["192.0.2.9"] }, ["plain"]],
      [{ hosts: ["two.example", "ONE.example"], labels: ["a"] }, ["label"]],
      [{ hosts: ["two.example", "ONE.example"] }, ["label", "queue", "key", "schedule", "plain"]],
      [{ labels: Array.from({ length: 200 }, (_, n) => `x${n}`).concat("a") }, ["label"]],
    ];

    test("find what a filter selects, in every list and both directions", async () => {
      const fixture = await StoreFixture.open(open);
      const nameOf = await several(fixture);
      for (const [filter, expected] of filters) {
        const { messageIds } = await fixture.store.read.unfinished({
          account: "acc",
          filter,
          count: 9,
          cursor: null,
        });
        expect(messageIds.map(nameOf), JSON.stringify(filter)).toEqual(
          expected.map((name) => `${name} waits`),
        );
        const { hosts: _, ...ofLetters } = filter;
        const inputs = async (order: typeof makeOldestFirstQuery) =>
          (await fixture.store.read.deadLetters(order({ filter: ofLetters }))).entries.map(
            ({ deadLetter: input }) => nameOf(input.id),
          );
        expect(await inputs(makeOldestFirstQuery), JSON.stringify(filter)).toEqual(
          expected.map((name) => `${name} failed`),
        );
        expect(await inputs(makeLogQuery)).toEqual(expected.map((name) => `${name} failed`).toReversed());
        const { events } = await fixture.store.read.log(makeOldestFirstQuery({ filter }));
        expect(events.length, JSON.stringify(filter)).toBe(expected.length * 8);
        expect((await fixture.store.read.log(makeLogQuery({ filter }))).events).toEqual(events.toReversed());
        expect(await readAllPages(fixture, { filter, count: 3 })).toEqual(events.toReversed());
      }
    });

    test("are removed with their rows", async () => {
      const fixture = await StoreFixture.open(open);
      await several(fixture);
      const { messageIds } = await fixture.store.read.unfinished({
        account: "acc",
        filter: {},
        count: 99,
        cursor: null,
      });
      await fixture.store.execute("cancel", { account: "acc", messageIds });
      const { entries } = await fixture.store.read.deadLetters(makeOldestFirstQuery());
      const dlqIds = entries.map(({ deadLetter }) => deadLetter.id);
      await fixture.store.execute("bulk", makeDeletion({ account: "acc", dlqIds, logRetention: 1_000 }));
      fixture.clock.now += 100_000;
      const retention = { log: 1_000, deadLetters: 1_000 };
      await fixture.store.execute("expire", {
        account: "acc",
        retention,
        now: fixture.clock.now,
        limit: 1_000,
      });
      expect((await fixture.store.read.log(makeLogQuery())).events).toEqual([]);
      // No query of the API reads tags, but this query accepts any table.
      expect(
        await fixture.store.read.listResources("tags" as "urlGroups", { account: "acc", limit: 100 }),
      ).toEqual([]);
    });
  });

  test("schedules are read as far as their bodies fit, or as requested without bodies", async () => {
    const fixture = await StoreFixture.open(open);
    await fixture.account();
    const { body: _, ...input } = makeInput();
    for (const [id, mebibytes] of [
      ["a", 0],
      ["b", 7],
      ["c", 8],
      ["d", 8],
      ["e", 8],
      ["f", 8],
      ["g", 0],
    ] as const) {
      const body = new Uint8Array(mebibytes * 1024 * 1024);
      await fixture.store.execute("createSchedule", {
        account: "acc",
        id,
        cron: "* * * * *",
        messageInput: input,
        body,
      });
    }
    const read = async (range: object) =>
      (await fixture.store.read.listResources("schedules", { account: "acc", limit: 10, ...range }))
        .map(({ id }) => id)
        .join("");
    expect(await read({})).toBe("abcde");
    expect(await read({ after: "e" })).toBe("fg");
    expect(await read({ after: "g" })).toBe("");
    expect(await read({ limit: 2 })).toBe("ab");
    expect(await read({ bodies: false })).toBe("abcdefg");
  });

  describe("the wait state of a message", () => {
    test("has its queue, its key, its waitlist and the holders of the slots", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const flowControl = { key: "k", parallelism: 1, rate: null, period: null };
      const first = await fixture.sent({
        queue: "q",
        flowControl,
        callback: makeCallback("https://back.example/"),
      });
      const second = await fixture.send({ queue: "q", flowControl });
      const third = await fixture.send({ queue: "q", flowControl });
      const other = await fixture.send({ flowControl });
      const readWaitState = (id: string) => fixture.store.read.waitState("acc", id);
      expect(await readWaitState(third)).toMatchObject({
        state: { id: third, state: "held", waitlist: "queue:q" },
        retries: 3,
        createdAt: fixture.clock.now,
        lastEntry: null,
        waitingAhead: 1,
        queue: { id: "queue:q", running: 1, waiting: 2 },
        key: { id: "key:k", running: 1, waiting: 1 },
        slotHolders: [{ messageId: first.message.id, holders: [{ id: first.message.id, state: "active" }] }],
      });
      expect(await readWaitState(other)).toMatchObject({
        waitingAhead: 0,
        queue: null,
        key: { id: "key:k" },
        slotHolders: [],
      });
      await fixture.settle(first);
      const [callback] = fixture.delivered();
      const holders = [{ id: callback?.message.id, slot: first.message.id }];
      expect(await readWaitState(second)).toMatchObject({
        waitingAhead: 0,
        slotHolders: [{ messageId: first.message.id, holders }],
      });
      expect(await readWaitState(first.message.id)).toBeNull();
      expect(await fixture.store.read.waitState("other", second)).toBeNull();
    });

    test("has the last entry of its log", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const delivery = await fixture.sent();
      await fixture.settle(delivery, { status: 503 });
      expect(await fixture.store.read.waitState("acc", delivery.message.id)).toMatchObject({
        lastEntry: { status: 503, states: ["ERROR", "RETRY"] },
      });
    });
  });
}
