import { describe, expect, test } from "vitest";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import type { RunFeatures, StepHead } from "../../../../src/engine/core/model/runPost.ts";
import type { Run } from "../../../../src/engine/core/model/run.ts";
import type { WaitPost } from "../../../../src/engine/core/commands/wait.ts";
import { bytes, makeOldestFirstQuery, makeInput, makeOutcome, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

const url = "https://flow.example/f";
const features: RunFeatures = { lazyFetch: true, initialBody: true, detect: false, captured: true };

/** Returns the request that starts a run. */
export const makeRunStart = (runId: string, overrides: Partial<MessageInput> = {}): MessageInput =>
  makeInput({
    url,
    body: bytes("payload\0"),
    post: { kind: "start", runId, url, features, origin: "sdk", invoker: null },
    ...overrides,
  });

/** Returns the request that posts a step of a run. */
export const makeRunStep = (
  runId: string,
  stepId: number,
  overrides: Partial<MessageInput> = {},
): MessageInput =>
  makeInput({
    url,
    body: bytes(`step ${stepId}`),
    post: { kind: "step", runId, head: makeStepHead(stepId) },
    ...overrides,
  });

const makeStepHead = (stepId: number): StepHead => ({
  stepId,
  stepName: `s${stepId}`,
  stepType: "Run",
  concurrent: 1,
});

/** Returns the request of a step that waits for an event. */
export const makeWaiter = (stepId: number, overrides: Partial<WaitPost> = {}): WaitPost => ({
  kind: "event",
  event: "paid",
  url,
  headers: [],
  given: [],
  timeout: "5s",
  wait: 5_000,
  step: { ...makeStepHead(stepId), stepType: "Wait" },
  timeoutUrl: url,
  timeoutHeaders: [],
  timeoutGiven: [],
  ...overrides,
});

/** Returns the history that a delivery carries, as texts. */
export const listHistory = ({ message: { body } }: Delivery): string[] =>
  (JSON.parse(new TextDecoder().decode(body)) as { body: string }[]).map((entry) =>
    Buffer.from(entry.body, "base64").toString(),
  );

/** Opens a store that has an account. */
export async function openWithAccount(open: OpenStore): Promise<StoreFixture> {
  const fixture = await StoreFixture.open(open);
  await fixture.account();
  return fixture;
}

/** Returns an active run, which must exist. */
export async function readActiveRun(fixture: StoreFixture, runId: string): Promise<Run> {
  const found = await fixture.store.read.activeRun("acc", runId);
  if (!found) throw new Error(`${runId} is not an active run`);
  return found.run;
}

/** Returns the position and the key of each step of a run. */
export const listPositions = async (fixture: StoreFixture, run: string): Promise<string[]> =>
  (await fixture.store.read.history("acc", run)).map(({ position, id }) => `${position} ${id.split("/")[1]}`);

/** Workflow runs: their histories and lists, and what is removed when they end. */
export function describeRuns(open: OpenStore): void {
  describe("runs", () => {
    describeHistories(open);
    describeReading(open);
    describeExpiring(open);
  });
}

function describeHistories(open: OpenStore): void {
  test("messages of one batch carry the history up to their own step", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1"), makeRunStep("wfr_1", 1), makeRunStep("wfr_1", 2)]);
    expect(fixture.delivered().map(listHistory)).toEqual([
      ["payload\0"],
      ["payload\0", "step 1"],
      ["payload\0", "step 1", "step 2"],
    ]);
  });

  test("a message that is sent later carries the history up to its own step", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([
      makeRunStart("wfr_1"),
      makeRunStep("wfr_1", 1, { delay: 1_000 }),
      makeRunStep("wfr_1", 2),
    ]);
    fixture.delivered();
    fixture.clock.now += 1_000;
    const claimed = await fixture.claim();
    expect(claimed.map(listHistory)).toEqual([["payload\0", "step 1"]]);
    for (const delivery of claimed) await fixture.settle(delivery, { status: 500 });
    fixture.clock.now += 60_000;
    expect(
      (await fixture.claim()).filter(({ message }) => message.run?.stepKey === "r1").map(listHistory),
    ).toEqual([["payload\0", "step 1"]]);
  });

  test("simultaneous posts, some of them duplicates, leave no gap in the history", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1")]);
    const run = await readActiveRun(fixture, "wfr_1");
    const posts = Array.from({ length: 12 }, (_, index) =>
      fixture.publish([makeRunStep("wfr_1", 1 + (index % 8))]),
    );
    const ids = (await Promise.all(posts)).map(([result]) =>
      result && "messageId" in result ? result.messageId : "",
    );
    expect(ids.slice(8)).toEqual(ids.slice(0, 4));
    const history = await fixture.store.read.history("acc", run.id);
    expect(history.map(({ position }) => position)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
    expect(new Set(history.map(({ messageId }) => messageId)).size).toBe(9);
  });

  test("a step settles the delivery that it was posted in once, and logs no status", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1")]);
    const run = await readActiveRun(fixture, "wfr_1");
    const [first] = fixture.delivered();
    if (!first) throw new Error("nothing was sent");
    fixture.clock.now += 5;
    await fixture.publish([makeRunStep("wfr_1", 1)]);
    const [second] = fixture.delivered();
    const { read } = fixture.store;
    expect((await read.listRunMessages("acc", run.id)).map(({ id }) => id)).toEqual([second?.message.id]);
    expect(await fixture.settle(first, { status: 500 })).toEqual({ became: "late" });
    fixture.clock.now += 5;
    await fixture.store.execute("finishRun", { account: "acc", runId: "wfr_1", body: bytes("") });
    expect(fixture.settledLeases).toEqual(
      [first, second].map((one) => ({ account: "acc", messageId: one?.message.id, attempt: 0 })),
    );
    for (const one of [first, second]) {
      const filter = { messageIds: [one?.message.id ?? ""] };
      const { events } = await read.log(makeOldestFirstQuery({ account: "acc", filter }));
      expect(events.map(({ state, row }) => [state, row?.status])).toEqual([
        ["CREATED", undefined],
        ["ACTIVE", undefined],
        ["DELIVERED", null],
      ]);
    }
  });

  test("a settled delivery keeps its place under a key until its request has ended", async () => {
    const fixture = await openWithAccount(open);
    const flowControl = { key: "k", parallelism: 1, rate: null, period: null };
    await fixture.publish([makeRunStart("wfr_1", { flowControl })]);
    const first = fixture.delivered()[0] as Delivery;
    fixture.clock.now += 5;
    await fixture.publish([makeRunStep("wfr_1", 1)]);
    expect(fixture.delivered()).toEqual([]);
    expect(await fixture.settle(first, { status: 500 })).toEqual({ became: "delivered" });
    expect(fixture.delivered()).toMatchObject([{ message: { run: { position: 1 } } }]);
    expect(await fixture.states(first.message.id)).toEqual(["CREATED", "ACTIVE", "DELIVERED"]);
  });

  test("a refused batch leaves nothing in the history", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1")]);
    const run = await readActiveRun(fixture, "wfr_1");
    await expect(fixture.publish([makeRunStep("wfr_1", 1), makeRunStep("wfr_none", 1)])).rejects.toThrow(
      "wfr_none",
    );
    expect(await listPositions(fixture, run.id)).toEqual(["0 i"]);
    await fixture.publish([makeRunStep("wfr_1", 2)]);
    expect(await listPositions(fixture, run.id)).toEqual(["0 i", "1 r2"]);
  });

  test("the end of a run removes waiting messages and leaves those in flight", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1"), makeRunStep("wfr_1", 2, { delay: 9_000 })]);
    const run = await readActiveRun(fixture, "wfr_1");
    const [first] = fixture.delivered();
    await fixture.store.execute("wait", { account: "acc", runId: "wfr_1", waiter: makeWaiter(3) });
    await fixture.store.execute("notify", {
      account: "acc",
      event: "other",
      body: bytes("x"),
      runId: "wfr_1",
      kind: "event",
    });
    await fixture.store.execute("finishRun", { account: "acc", runId: "wfr_1", body: bytes("result\0") });
    const { read } = fixture.store;
    expect((await read.listRunMessages("acc", run.id)).map(({ id }) => id)).toEqual([first?.message.id]);
    expect([await read.listWaiters("acc", run.id), await read.listNotifications("acc", run.id)]).toEqual([
      [],
      [],
    ]);
    expect(await read.activeRun("acc", "wfr_1")).toBeNull();
    expect(await read.run("acc", run.id)).toMatchObject({
      state: "RUN_SUCCESS",
      steps: 2,
      body: bytes("result\0"),
    });
    await expect(fixture.publish([makeRunStep("wfr_1", 4)])).rejects.toThrow("no active run");
    if (first) expect(await fixture.settle(first, { status: 500 })).toEqual({ became: "failed" });
    expect(await read.listRunMessages("acc", run.id)).toEqual([]);
  });
}

function describeReading(open: OpenStore): void {
  test("runs are listed newest first, page by page, by every filter", async () => {
    const fixture = await openWithAccount(open);
    for (const [index, runId] of ["a", "b", "a", "c"].entries()) {
      await fixture.publish([
        makeRunStart(runId, { labels: index % 2 === 0 ? ["even"] : [], callerIp: null }),
      ]);
      await fixture.store.execute(runId === "c" ? "finishRun" : "cancelRuns", {
        account: "acc",
        runId,
        runIds: [runId],
        body: bytes("r"),
      });
      fixture.clock.now += 10;
    }
    const list = async (
      filter: Parameters<typeof fixture.store.read.runs>[0]["filter"],
      count = 9,
      cursor: string | null = null,
    ) => {
      const page = await fixture.store.read.runs({ account: "acc", filter, cursor, count });
      return { names: page.runs.map(({ runId }) => runId).join(""), cursor: page.cursor };
    };
    expect(await list({})).toEqual({ names: "caba", cursor: null });
    const first = await list({}, 3);
    expect(first.names).toBe("cab");
    expect(await list({}, 3, first.cursor)).toEqual({ names: "a", cursor: null });
    expect((await list({ runIds: ["a"] })).names).toBe("aa");
    expect((await list({ labels: ["even"], states: ["RUN_CANCELED"] })).names).toBe("aa");
    expect((await list({ states: ["RUN_SUCCESS"] })).names).toBe("c");
    expect(
      (await list({ urls: [url], from: fixture.clock.now - 20, to: fixture.clock.now - 20 })).names,
    ).toBe("a");
    const { runs } = await fixture.store.read.runs({
      account: "acc",
      filter: { runIds: ["a"] },
      cursor: null,
      count: 9,
    });
    expect(
      (await list({ runs: runs.slice(1).map(({ runId, createdAt }) => ({ runId, createdAt })) })).names,
    ).toBe("a");
  });

  test("a light list counts steps and finds why runs wait, each run by itself", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("waits"), makeRunStep("waits", 1), makeRunStep("waits", 2)]);
    await fixture.store.execute("wait", { account: "acc", runId: "waits", waiter: makeWaiter(3) });
    fixture.clock.now += 10;
    await fixture.publish([makeRunStart("held"), makeRunStep("held", 1)]);
    fixture.clock.now += 10;
    await fixture.send(makeRunStart("ended"));
    await fixture.store.execute("finishRun", { account: "acc", runId: "ended", body: bytes("r") });
    const query = { account: "acc", filter: {}, cursor: null, count: 9 };
    const { entries } = await fixture.store.read.listRunEntries({ ...query, progressAt: fixture.clock.now });
    expect(entries.map(({ run, progress }) => [run.runId, progress?.steps?.done])).toEqual([
      ["ended", 0],
      ["held", 1],
      ["waits", 2],
    ]);
    expect(entries[0]?.progress?.reason).toBeNull();
    expect(entries[2]?.progress?.reason).toMatchObject({ reason: "event", event: makeWaiter(3).event });
    const plain = await fixture.store.read.listRunEntries(query);
    expect(plain.entries.every(({ progress }) => progress === undefined)).toBe(true);
  });

  test("a light list has the progress of active runs, and what failed runs became", async () => {
    const fixture = await openWithAccount(open);
    type Query = { messageId?: string; cursor?: string; count?: number; ascending?: boolean };
    const listEntries = (query: Query = {}) =>
      fixture.store.read.listRunEntries({ account: "acc", filter: {}, cursor: null, count: 9, ...query });
    const { dlqId } = await fixture.publishFailing(makeRunStart("failed", { retries: 0 }));
    expect((await listEntries()).entries).toMatchObject([
      { run: { state: "RUN_FAILED", failure: { dlqId } }, active: null },
    ]);
    fixture.clock.now += 10;
    await fixture.store.execute("resumeRun", {
      ...{ account: "acc", dlqId, from: "failure" as const, overrides: {}, logRetention: 1e9 },
    });
    fixture.clock.now += 10;
    await fixture.publish([makeRunStart("active"), makeRunStep("active", 1)]);
    await fixture.store.execute("wait", { account: "acc", runId: "active", waiter: makeWaiter(2) });
    fixture.clock.now += 10;
    const messageId = await fixture.send(makeRunStart("ended"));
    await fixture.store.execute("finishRun", { account: "acc", runId: "ended", body: bytes("r") });
    const { entries, cursor } = await listEntries();
    expect(cursor).toBeNull();
    expect(
      entries.map(({ run, active }) => [run.runId, run.body.length, active?.steps, active?.waiting]),
    ).toEqual([
      ["ended", 0, undefined, undefined],
      ["active", 0, 2, 1],
      [expect.any(String), 0, 1, 0],
      ["failed", 0, undefined, undefined],
    ]);
    expect(entries[2]?.lineage).toMatchObject({ origin: { runId: "failed" }, next: null });
    expect(entries[3]?.lineage).toMatchObject({ origin: null, next: { runId: entries[2]?.run.runId } });
    expect(entries[3]?.run.failure?.dlqId).toBeNull();
    const first = await listEntries({ count: 3 });
    expect(first.entries).toEqual(entries.slice(0, 3));
    expect((await listEntries({ cursor: first.cursor ?? "" })).entries).toEqual(entries.slice(3));
    expect((await listEntries({ messageId })).entries).toEqual(entries.slice(0, 1));
    expect((await listEntries({ ascending: true })).entries).toEqual(entries.toReversed());
  });

  test("a history of any length is read whole, with or without its bodies", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([
      makeRunStart("wfr_1"),
      ...Array.from({ length: 1_100 }, (_, index) => makeRunStep("wfr_1", index + 1)),
    ]);
    const run = await readActiveRun(fixture, "wfr_1");
    const history = await fixture.store.read.history("acc", run.id);
    expect(history.map(({ position }) => position)).toEqual(
      Array.from({ length: 1_101 }, (_, index) => index),
    );
    const outline = await fixture.store.read.history("acc", run.id, { bodies: false });
    expect(outline.map(({ messageId }) => messageId)).toEqual(history.map(({ messageId }) => messageId));
    expect(outline.every(({ body }) => body.byteLength === 0)).toBe(true);
  });
}

function describeExpiring(open: OpenStore): void {
  const expire = (fixture: StoreFixture, { log = 1_000, deadLetters = 1_000, limit = 100 }) =>
    fixture.store.execute("expire", {
      account: "acc",
      retention: { log, deadLetters },
      now: fixture.clock.now,
      limit,
    });

  test("a run is removed with its history, in portions, after its retention", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([
      makeRunStart("old"),
      ...[1, 2, 3, 4, 5].map((stepId) => makeRunStep("old", stepId)),
    ]);
    await fixture.publish([makeRunStart("new"), makeRunStep("new", 1)]);
    const old = await readActiveRun(fixture, "old");
    const other = await readActiveRun(fixture, "new");
    for (const delivery of fixture.delivered()) await fixture.settle(delivery);
    await fixture.store.execute("finishRun", { account: "acc", runId: "old", body: bytes("") });
    fixture.clock.now += 1_001;
    let removed = 0;
    for (let turn = 0, more = true; more && turn < 50; turn++) {
      const answer = await expire(fixture, { limit: 2 });
      removed += answer.removed;
      more = answer.more;
      const left = await fixture.store.read.history("acc", old.id);
      if (left.length > 0) expect(await fixture.store.read.run("acc", old.id)).not.toBeNull();
    }
    expect(removed).toBeGreaterThanOrEqual(7);
    expect([
      await fixture.store.read.run("acc", old.id),
      await fixture.store.read.history("acc", old.id),
    ]).toEqual([null, []]);
    expect(await listPositions(fixture, other.id)).toEqual(["0 i", "1 r1"]);
    expect((await readActiveRun(fixture, "new")).id).toBe(other.id);
  });

  test("more failed runs than fit into a batch are resumed with their whole histories", async () => {
    const fixture = await openWithAccount(open);
    const payload = new Uint8Array(7 * 1024 * 1024).fill(65);
    for (const at of [0, 1, 2, 3, 4]) {
      await fixture.publish([makeRunStart(`wfr_${at}`, { retries: 0, body: payload })]);
      const [delivery] = fixture.delivered();
      if (delivery) await fixture.settle(delivery, { status: 500 });
    }
    // A page with all payloads would be too large.
    const { entries } = await fixture.store.read.deadLetters({ ...makeOldestFirstQuery(), bodies: false });
    const resumed = await Promise.all(
      entries.map(({ deadLetter: { id: dlqId } }, at) => {
        const from = at % 2 === 0 ? ("failure" as const) : ("beginning" as const);
        return fixture.store.execute("resumeRun", {
          account: "acc",
          dlqId,
          from,
          overrides: {},
          logRetention: 1_000,
        });
      }),
    );
    expect(resumed).toHaveLength(5);
    for (const { runId } of resumed) {
      const run = await readActiveRun(fixture, runId);
      expect((await fixture.store.read.history("acc", run.id)).map(({ body }) => body.byteLength)).toEqual([
        payload.byteLength,
      ]);
    }
  });

  test("a failed run is kept as long as it can be resumed", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1", { retries: 0 })]);
    const run = await readActiveRun(fixture, "wfr_1");
    const [delivery] = fixture.delivered();
    if (delivery) await fixture.store.execute("settle", makeOutcome(delivery, { status: 500 }));
    fixture.clock.now += 1_001;
    await expire(fixture, { deadLetters: 5_000 });
    expect(await listPositions(fixture, run.id)).toEqual(["0 i"]);
    fixture.clock.now += 4_000;
    await expire(fixture, { deadLetters: 5_000 });
    expect(await fixture.store.read.run("acc", run.id)).toBeNull();
    expect(await fixture.store.read.history("acc", run.id)).toEqual([]);
  });
}
