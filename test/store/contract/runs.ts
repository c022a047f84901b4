import { describe, expect, test } from "vitest";
import type { Delivery, MessageInput, RunFeatures, StepHead } from "../../../src/core/model/message.ts";
import type { Run } from "../../../src/core/model/run.ts";
import type { WaitPost } from "../../../src/core/workflows/wait.ts";
import { bytes, makeOldestFirstQuery, makeInput, makeOutcome, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

const url = "https://flow.example/f";
const features: RunFeatures = { lazyFetch: true, initialBody: true, detect: false, captured: true };

export const makeRunStart = (runId: string, overrides: Partial<MessageInput> = {}): MessageInput =>
  makeInput({ url, body: bytes("payload\0"), post: { kind: "start", runId, url, features, origin: "sdk", invoker: null }, ...overrides });

export const makeRunStep = (runId: string, stepId: number, overrides: Partial<MessageInput> = {}): MessageInput =>
  makeInput({ url, body: bytes(`step ${stepId}`), post: { kind: "step", runId, head: makeStepHead(stepId) }, ...overrides });

const makeStepHead = (stepId: number): StepHead => ({ stepId, stepName: `s${stepId}`, stepType: "Run", concurrent: 1 });

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

/** The history that a delivery carries, as texts. */
const listHistory = ({ message: { body } }: Delivery): string[] =>
  (JSON.parse(new TextDecoder().decode(body)) as { body: string }[]).map((entry) => Buffer.from(entry.body, "base64").toString());

async function openWithAccount(open: OpenStore): Promise<StoreFixture> {
  const fixture = await StoreFixture.open(open);
  await fixture.account();
  return fixture;
}

async function readActiveRun(fixture: StoreFixture, runId: string): Promise<Run> {
  const found = await fixture.store.read.activeRun("acc", runId);
  if (!found) throw new Error(`${runId} does not go on`);
  return found.run;
}

const listPositions = async (fixture: StoreFixture, run: string): Promise<string[]> =>
  (await fixture.store.read.history("acc", run)).map(({ position, id }) => `${position} ${id.split("/")[1]}`);

/** Workflow runs: their histories, what waits, and what goes when they end. */
export function describeRuns(open: OpenStore): void {
  describe("runs", () => {
    describeHistories(open);
    describeWaiting(open);
    describeReading(open);
    describeExpiring(open);
  });
}

function describeHistories(open: OpenStore): void {
  test("messages of one batch carry the history up to their own step", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1"), makeRunStep("wfr_1", 1), makeRunStep("wfr_1", 2)]);
    expect(fixture.delivered().map(listHistory)).toEqual([["payload\0"], ["payload\0", "step 1"], ["payload\0", "step 1", "step 2"]]);
  });

  test("a message that is sent later carries no more than that", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1"), makeRunStep("wfr_1", 1, { delay: 1_000 }), makeRunStep("wfr_1", 2)]);
    fixture.delivered();
    fixture.clock.now += 1_000;
    const claimed = await fixture.claim();
    expect(claimed.map(listHistory)).toEqual([["payload\0", "step 1"]]);
    for (const delivery of claimed) await fixture.settle(delivery, { status: 500 });
    fixture.clock.now += 60_000;
    expect((await fixture.claim()).filter(({ message }) => message.run?.stepKey === "r1").map(listHistory)).toEqual([
      ["payload\0", "step 1"],
    ]);
  });

  test("posts at the same time, some of them twice, leave no gap", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1")]);
    const run = await readActiveRun(fixture, "wfr_1");
    const posts = Array.from({ length: 12 }, (_, index) => fixture.publish([makeRunStep("wfr_1", 1 + (index % 8))]));
    const ids = (await Promise.all(posts)).map(([result]) => (result && "messageId" in result ? result.messageId : ""));
    expect(ids.slice(8)).toEqual(ids.slice(0, 4));
    const history = await fixture.store.read.history("acc", run.id);
    expect(history.map(({ position }) => position)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
    expect(new Set(history.map(({ messageId }) => messageId)).size).toBe(9);
  });

  test("nothing of a refused batch is kept", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1")]);
    const run = await readActiveRun(fixture, "wfr_1");
    await expect(fixture.publish([makeRunStep("wfr_1", 1), makeRunStep("wfr_none", 1)])).rejects.toThrow("wfr_none");
    expect(await listPositions(fixture, run.id)).toEqual(["0 i"]);
    await fixture.publish([makeRunStep("wfr_1", 2)]);
    expect(await listPositions(fixture, run.id)).toEqual(["0 i", "1 r2"]);
  });

  test("the end takes along what waits to be sent, and leaves what is being sent", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1"), makeRunStep("wfr_1", 1, { delay: 9_000 })]);
    const run = await readActiveRun(fixture, "wfr_1");
    const [first] = fixture.delivered();
    await fixture.store.execute("wait", { account: "acc", runId: "wfr_1", waiter: makeWaiter(2) });
    await fixture.store.execute("notify", { account: "acc", event: "other", body: bytes("x"), runId: "wfr_1", kind: "event" });
    await fixture.store.execute("finishRun", { account: "acc", runId: "wfr_1", body: bytes("result\0") });
    const { read } = fixture.store;
    expect((await read.listRunMessages("acc", run.id)).map(({ id }) => id)).toEqual([first?.message.id]);
    expect([await read.listWaiters("acc", run.id), await read.listNotifications("acc", run.id)]).toEqual([[], []]);
    expect(await read.activeRun("acc", "wfr_1")).toBeNull();
    expect(await read.run("acc", run.id)).toMatchObject({ state: "RUN_SUCCESS", steps: 2, body: bytes("result\0") });
    await expect(fixture.publish([makeRunStep("wfr_1", 3)])).rejects.toThrow("has not ended");
    if (first) expect(await fixture.settle(first, { status: 500 })).toEqual({ became: "failed" });
    expect(await read.listRunMessages("acc", run.id)).toEqual([]);
  });
}

function describeWaiting(open: OpenStore): void {
  test("a waiter is due when its time is over, and wakes once", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1")]);
    for (const delivery of fixture.delivered()) await fixture.settle(delivery);
    const run = await readActiveRun(fixture, "wfr_1");
    await fixture.store.execute("wait", { account: "acc", runId: "wfr_1", waiter: makeWaiter(1) });
    await fixture.store.execute("wait", { account: "acc", runId: "wfr_1", waiter: makeWaiter(2, { wait: 9_000 }) });
    expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now + 5_000);
    fixture.clock.now += 4_999;
    expect(await fixture.claim()).toEqual([]);
    fixture.clock.now += 1;
    const woken = await fixture.claim();
    expect(woken.map((delivery) => listHistory(delivery).slice(1).join(""))).toEqual([expect.stringContaining('"waitTimeout":true')]);
    for (const delivery of woken) await fixture.settle(delivery);
    expect(await fixture.claim()).toEqual([]);
    expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now + 4_000);
    expect((await fixture.store.read.listWaiters("acc", run.id)).map(({ id }) => id)).toEqual([`${run.id}/2`]);
  });

  test("waiters that are due are taken as many as asked for, oldest first", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1")]);
    fixture.delivered();
    for (const [index, stepId] of [3, 1, 2].entries())
      await fixture.store.execute("wait", { account: "acc", runId: "wfr_1", waiter: makeWaiter(stepId, { wait: 1_000 + index }) });
    fixture.clock.now += 2_000;
    const run = await readActiveRun(fixture, "wfr_1");
    expect(await fixture.store.execute("claim", { limit: 9, waiters: 2 })).toMatchObject({ more: true });
    expect(await listPositions(fixture, run.id)).toEqual(["0 i", "1 r3", "2 r1"]);
    expect(await fixture.store.execute("claim", { limit: 9 })).toMatchObject({ more: false });
    expect(await listPositions(fixture, run.id)).toEqual(["0 i", "1 r3", "2 r1", "3 r2"]);
  });

  test("events that came before are taken in their order, each once", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1")]);
    fixture.delivered();
    const run = await readActiveRun(fixture, "wfr_1");
    for (const text of ["one", "two\0", "three"])
      await fixture.store.execute("notify", { account: "acc", event: "paid", body: bytes(text), runId: "wfr_1", kind: "event" });
    expect((await fixture.store.read.listNotifications("acc", run.id)).map(({ body }) => body)).toEqual(
      ["one", "two\0", "three"].map(bytes),
    );
    for (const stepId of [1, 2]) await fixture.store.execute("wait", { account: "acc", runId: "wfr_1", waiter: makeWaiter(stepId) });
    const outs = (await fixture.store.read.history("acc", run.id))
      .slice(1)
      .map(({ body }) => JSON.parse(new TextDecoder().decode(body)).out);
    expect(outs.map((out: string) => atob(out))).toEqual(["one", "two\0"]);
    expect(await fixture.store.read.listNotifications("acc", run.id)).toHaveLength(1);
  });

  test("two steps that ask at once for events of one name take one each, in their order", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1")]);
    const tell = (event: string, text: string) =>
      fixture.store.execute("notify", { account: "acc", event, body: bytes(text), runId: "wfr_1", kind: "event" });
    for (const text of ["one", "two", "three"]) await tell("paid", text);
    await tell("größe", "other");
    fixture.delivered();
    const run = await readActiveRun(fixture, "wfr_1");
    await Promise.all(
      [1, 2].map((stepId) => fixture.store.execute("wait", { account: "acc", runId: "wfr_1", waiter: makeWaiter(stepId) })),
    );
    const told = (await fixture.store.read.history("acc", run.id)).slice(1).map(({ body }) => JSON.parse(new TextDecoder().decode(body)));
    expect(told.map(({ stepId, out }) => [stepId, atob(out)])).toEqual([
      [1, "one"],
      [2, "two"],
    ]);
    expect((await fixture.store.read.listNotifications("acc", run.id)).map(({ body, size }) => [body, size])).toEqual([
      [bytes("three"), 5],
      [bytes("other"), 5],
    ]);
  });

  test("an event wakes those of its run that wait for it, and nobody else", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1")]);
    await fixture.publish([makeRunStart("wfr_2")]);
    for (const runId of ["wfr_1", "wfr_2"]) {
      for (const [stepId, event] of [[1, "paid"] as const, [2, "größe"] as const, [3, "paid"] as const])
        await fixture.store.execute("wait", { account: "acc", runId, waiter: makeWaiter(stepId, { event }) });
    }
    const told = await fixture.store.execute("notify", { account: "acc", event: "paid", body: bytes("x"), runId: "wfr_1", kind: "event" });
    expect(told.notified.map(({ waiter: { runId, id } }) => [runId, id.split("/")[1]])).toEqual([
      ["wfr_1", "1"],
      ["wfr_1", "3"],
    ]);
    const going = await fixture.store.read.activeRun("acc", "wfr_1");
    expect([going?.active.waiting, going?.active.steps]).toEqual([1, 3]);
    expect((await fixture.store.read.activeRun("acc", "wfr_2"))?.active.waiting).toBe(3);
  });

  test("waiters of an event are found in all runs of the account, page by page", async () => {
    const fixture = await openWithAccount(open);
    await fixture.account("other");
    for (const runId of ["a", "b", "c"]) {
      await fixture.publish([makeRunStart(runId)]);
      await fixture.store.execute("wait", { account: "acc", runId, waiter: makeWaiter(1) });
    }
    await fixture.publish([makeRunStart("a")], "other");
    await fixture.store.execute("wait", { account: "other", runId: "a", waiter: makeWaiter(1) });
    const { read } = fixture.store;
    const first = await read.listEventWaiters("acc", "paid", { limit: 2 });
    const rest = await read.listEventWaiters("acc", "paid", { after: first.at(-1)?.id ?? "", limit: 2 });
    expect([...first, ...rest].map(({ runId }) => runId)).toEqual(["a", "b", "c"]);
    expect(await read.listEventWaiters("acc", "pai", { limit: 2 })).toEqual([]);
  });
}

function describeReading(open: OpenStore): void {
  test("runs are listed newest first, page by page, and by what they have", async () => {
    const fixture = await openWithAccount(open);
    for (const [index, runId] of ["a", "b", "a", "c"].entries()) {
      await fixture.publish([makeRunStart(runId, { labels: index % 2 === 0 ? ["even"] : [], callerIp: null })]);
      await fixture.store.execute(runId === "c" ? "finishRun" : "cancelRuns", {
        account: "acc",
        runId,
        runIds: [runId],
        body: bytes("r"),
      });
      fixture.clock.now += 10;
    }
    const list = async (filter: Parameters<typeof fixture.store.read.runs>[0]["filter"], count = 9, cursor: string | null = null) => {
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
    expect((await list({ urls: [url], from: fixture.clock.now - 20, to: fixture.clock.now - 20 })).names).toBe("a");
    const { runs } = await fixture.store.read.runs({ account: "acc", filter: { runIds: ["a"] }, cursor: null, count: 9 });
    expect((await list({ runs: runs.slice(1).map(({ runId, createdAt }) => ({ runId, createdAt })) })).names).toBe("a");
  });

  test("a history is read whole, however long, or without its bodies", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("wfr_1"), ...Array.from({ length: 1_100 }, (_, index) => makeRunStep("wfr_1", index + 1))]);
    const run = await readActiveRun(fixture, "wfr_1");
    const history = await fixture.store.read.history("acc", run.id);
    expect(history.map(({ position }) => position)).toEqual(Array.from({ length: 1_101 }, (_, index) => index));
    const outline = await fixture.store.read.history("acc", run.id, { bodies: false });
    expect(outline.map(({ messageId }) => messageId)).toEqual(history.map(({ messageId }) => messageId));
    expect(outline.every(({ body }) => body.byteLength === 0)).toBe(true);
  });
}

function describeExpiring(open: OpenStore): void {
  const expire = (fixture: StoreFixture, { log = 1_000, deadLetters = 1_000, limit = 100 }) =>
    fixture.store.execute("expire", { account: "acc", retention: { log, deadLetters }, now: fixture.clock.now, limit });

  test("a run goes with its history, in portions, when it ended long enough ago", async () => {
    const fixture = await openWithAccount(open);
    await fixture.publish([makeRunStart("old"), ...[1, 2, 3, 4, 5].map((stepId) => makeRunStep("old", stepId))]);
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
    expect([await fixture.store.read.run("acc", old.id), await fixture.store.read.history("acc", old.id)]).toEqual([null, []]);
    expect(await listPositions(fixture, other.id)).toEqual(["0 i", "1 r1"]);
    expect((await readActiveRun(fixture, "new")).id).toBe(other.id);
  });

  test("failed runs that are more than fit into a batch go on all the same, with all that they had", async () => {
    const fixture = await openWithAccount(open);
    const payload = new Uint8Array(7 * 1024 * 1024).fill(65);
    for (const at of [0, 1, 2, 3, 4]) {
      await fixture.publish([makeRunStart(`wfr_${at}`, { retries: 0, body: payload })]);
      const [delivery] = fixture.delivered();
      if (delivery) await fixture.settle(delivery, { status: 500 });
    }
    // A page with the payloads of all of them would be too large.
    const { entries } = await fixture.store.read.deadLetters({ ...makeOldestFirstQuery(), bodies: false });
    const resumed = await Promise.all(
      entries.map(({ deadLetter: { id: dlqId } }, at) => {
        const from = at % 2 === 0 ? ("failure" as const) : ("beginning" as const);
        return fixture.store.execute("resumeRun", { account: "acc", dlqId, from, overrides: {}, logRetention: 1_000 });
      }),
    );
    expect(resumed).toHaveLength(5);
    for (const { runId } of resumed) {
      const run = await readActiveRun(fixture, runId);
      expect((await fixture.store.read.history("acc", run.id)).map(({ body }) => body.byteLength)).toEqual([payload.byteLength]);
    }
  });

  test("a run that has failed stays as long as it can be resumed", async () => {
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
