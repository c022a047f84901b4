import { describe, expect, test } from "vitest";
import type { Delivery, Letter, RunFeatures, StepHead } from "../../../src/core/model/message.ts";
import type { Run } from "../../../src/core/model/run.ts";
import type { WaitPost } from "../../../src/core/workflows/wait.ts";
import { bytes, earliest, letterTo, outcomeOf, World } from "../world.ts";
import type { OpenStore } from "../world.ts";

const url = "https://flow.example/f";
const features: RunFeatures = { lazyFetch: true, initialBody: true, detect: false, captured: true };

export const runStart = (runId: string, over: Partial<Letter> = {}): Letter =>
  letterTo({ url, body: bytes("payload\0"), post: { kind: "start", runId, url, features, origin: "sdk", invoker: null }, ...over });

export const runStep = (runId: string, stepId: number, over: Partial<Letter> = {}): Letter =>
  letterTo({ url, body: bytes(`step ${stepId}`), post: { kind: "step", runId, head: headOf(stepId) }, ...over });

const headOf = (stepId: number): StepHead => ({ stepId, stepName: `s${stepId}`, stepType: "Run", concurrent: 1 });

export const runWaiter = (stepId: number, over: Partial<WaitPost> = {}): WaitPost => ({
  ...{
    kind: "event",
    event: "paid",
    url,
    headers: [],
    given: [],
    timeout: "5s",
    wait: 5_000,
    step: { ...headOf(stepId), stepType: "Wait" },
  },
  ...{ timeoutUrl: url, timeoutHeaders: [], timeoutGiven: [], ...over },
});

/** The history that a delivery carries, as texts. */
const carried = ({ message: { body } }: Delivery): string[] =>
  (JSON.parse(new TextDecoder().decode(body)) as { body: string }[]).map((entry) => Buffer.from(entry.body, "base64").toString());

async function opened(open: OpenStore): Promise<World> {
  const world = await World.open(open);
  await world.account();
  return world;
}

async function active(world: World, runId: string): Promise<Run> {
  const found = await world.store.read.activeRun("acc", runId);
  if (!found) throw new Error(`${runId} does not go on`);
  return found.run;
}

const positions = async (world: World, run: string): Promise<string[]> =>
  (await world.store.read.history("acc", run)).map(({ position, id }) => `${position} ${id.split("/")[1]}`);

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
    const world = await opened(open);
    await world.publish([runStart("wfr_1"), runStep("wfr_1", 1), runStep("wfr_1", 2)]);
    expect(world.delivered().map(carried)).toEqual([["payload\0"], ["payload\0", "step 1"], ["payload\0", "step 1", "step 2"]]);
  });

  test("a message that is sent later carries no more than that", async () => {
    const world = await opened(open);
    await world.publish([runStart("wfr_1"), runStep("wfr_1", 1, { delay: 1_000 }), runStep("wfr_1", 2)]);
    world.delivered();
    world.clock.now += 1_000;
    const claimed = await world.claim();
    expect(claimed.map(carried)).toEqual([["payload\0", "step 1"]]);
    for (const delivery of claimed) await world.settle(delivery, { status: 500 });
    world.clock.now += 60_000;
    expect((await world.claim()).filter(({ message }) => message.run?.slot === "r1").map(carried)).toEqual([["payload\0", "step 1"]]);
  });

  test("posts at the same time, some of them twice, leave no gap", async () => {
    const world = await opened(open);
    await world.publish([runStart("wfr_1")]);
    const run = await active(world, "wfr_1");
    const posts = Array.from({ length: 12 }, (_, index) => world.publish([runStep("wfr_1", 1 + (index % 8))]));
    const ids = (await Promise.all(posts)).map(([result]) => (result && "messageId" in result ? result.messageId : ""));
    expect(ids.slice(8)).toEqual(ids.slice(0, 4));
    const history = await world.store.read.history("acc", run.id);
    expect(history.map(({ position }) => position)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
    expect(new Set(history.map(({ messageId }) => messageId)).size).toBe(9);
  });

  test("nothing of a refused batch is kept", async () => {
    const world = await opened(open);
    await world.publish([runStart("wfr_1")]);
    const run = await active(world, "wfr_1");
    await expect(world.publish([runStep("wfr_1", 1), runStep("wfr_none", 1)])).rejects.toThrow("wfr_none");
    expect(await positions(world, run.id)).toEqual(["0 i"]);
    await world.publish([runStep("wfr_1", 2)]);
    expect(await positions(world, run.id)).toEqual(["0 i", "1 r2"]);
  });

  test("the end takes along what waits to be sent, and leaves what is being sent", async () => {
    const world = await opened(open);
    await world.publish([runStart("wfr_1"), runStep("wfr_1", 1, { delay: 9_000 })]);
    const run = await active(world, "wfr_1");
    const [first] = world.delivered();
    await world.store.execute("wait", { account: "acc", runId: "wfr_1", waiter: runWaiter(2) });
    await world.store.execute("notify", { account: "acc", event: "other", body: bytes("x"), runId: "wfr_1", kind: "event" });
    await world.store.execute("finishRun", { account: "acc", runId: "wfr_1", body: bytes("result\0") });
    const { read } = world.store;
    expect((await read.messagesOfRun("acc", run.id)).map(({ id }) => id)).toEqual([first?.message.id]);
    expect([await read.waitersOf("acc", run.id), await read.notificationsOf("acc", run.id)]).toEqual([[], []]);
    expect(await read.activeRun("acc", "wfr_1")).toBeNull();
    expect(await read.run("acc", run.id)).toMatchObject({ state: "RUN_SUCCESS", steps: 2, body: bytes("result\0") });
    await expect(world.publish([runStep("wfr_1", 3)])).rejects.toThrow("has not ended");
    if (first) expect(await world.settle(first, { status: 500 })).toEqual({ became: "failed" });
    expect(await read.messagesOfRun("acc", run.id)).toEqual([]);
  });
}

function describeWaiting(open: OpenStore): void {
  test("a waiter is due when its time is over, and wakes once", async () => {
    const world = await opened(open);
    await world.publish([runStart("wfr_1")]);
    for (const delivery of world.delivered()) await world.settle(delivery);
    const run = await active(world, "wfr_1");
    await world.store.execute("wait", { account: "acc", runId: "wfr_1", waiter: runWaiter(1) });
    await world.store.execute("wait", { account: "acc", runId: "wfr_1", waiter: runWaiter(2, { wait: 9_000 }) });
    expect(await world.store.nextDueAt()).toBe(world.clock.now + 5_000);
    world.clock.now += 4_999;
    expect(await world.claim()).toEqual([]);
    world.clock.now += 1;
    const woken = await world.claim();
    expect(woken.map((delivery) => carried(delivery).slice(1).join(""))).toEqual([expect.stringContaining('"waitTimeout":true')]);
    for (const delivery of woken) await world.settle(delivery);
    expect(await world.claim()).toEqual([]);
    expect(await world.store.nextDueAt()).toBe(world.clock.now + 4_000);
    expect((await world.store.read.waitersOf("acc", run.id)).map(({ id }) => id)).toEqual([`${run.id}/2`]);
  });

  test("waiters that are due are taken as many as asked for, oldest first", async () => {
    const world = await opened(open);
    await world.publish([runStart("wfr_1")]);
    world.delivered();
    for (const [index, stepId] of [3, 1, 2].entries())
      await world.store.execute("wait", { account: "acc", runId: "wfr_1", waiter: runWaiter(stepId, { wait: 1_000 + index }) });
    world.clock.now += 2_000;
    const run = await active(world, "wfr_1");
    expect(await world.store.execute("claim", { limit: 9, waiters: 2 })).toMatchObject({ more: true });
    expect(await positions(world, run.id)).toEqual(["0 i", "1 r3", "2 r1"]);
    expect(await world.store.execute("claim", { limit: 9 })).toMatchObject({ more: false });
    expect(await positions(world, run.id)).toEqual(["0 i", "1 r3", "2 r1", "3 r2"]);
  });

  test("events that came before are taken in their order, each once", async () => {
    const world = await opened(open);
    await world.publish([runStart("wfr_1")]);
    world.delivered();
    const run = await active(world, "wfr_1");
    for (const text of ["one", "two\0", "three"])
      await world.store.execute("notify", { account: "acc", event: "paid", body: bytes(text), runId: "wfr_1", kind: "event" });
    expect((await world.store.read.notificationsOf("acc", run.id)).map(({ body }) => body)).toEqual(["one", "two\0", "three"].map(bytes));
    for (const stepId of [1, 2]) await world.store.execute("wait", { account: "acc", runId: "wfr_1", waiter: runWaiter(stepId) });
    const outs = (await world.store.read.history("acc", run.id)).slice(1).map(({ body }) => JSON.parse(new TextDecoder().decode(body)).out);
    expect(outs.map((out: string) => atob(out))).toEqual(["one", "two\0"]);
    expect(await world.store.read.notificationsOf("acc", run.id)).toHaveLength(1);
  });

  test("two steps that ask at once for events of one name take one each, in their order", async () => {
    const world = await opened(open);
    await world.publish([runStart("wfr_1")]);
    const tell = (event: string, text: string) =>
      world.store.execute("notify", { account: "acc", event, body: bytes(text), runId: "wfr_1", kind: "event" });
    for (const text of ["one", "two", "three"]) await tell("paid", text);
    await tell("größe", "other");
    world.delivered();
    const run = await active(world, "wfr_1");
    await Promise.all([1, 2].map((stepId) => world.store.execute("wait", { account: "acc", runId: "wfr_1", waiter: runWaiter(stepId) })));
    const told = (await world.store.read.history("acc", run.id)).slice(1).map(({ body }) => JSON.parse(new TextDecoder().decode(body)));
    expect(told.map(({ stepId, out }) => [stepId, atob(out)])).toEqual([
      [1, "one"],
      [2, "two"],
    ]);
    expect((await world.store.read.notificationsOf("acc", run.id)).map(({ body, size }) => [body, size])).toEqual([
      [bytes("three"), 5],
      [bytes("other"), 5],
    ]);
  });

  test("an event wakes those of its run that wait for it, and nobody else", async () => {
    const world = await opened(open);
    await world.publish([runStart("wfr_1")]);
    await world.publish([runStart("wfr_2")]);
    for (const runId of ["wfr_1", "wfr_2"]) {
      for (const [stepId, event] of [[1, "paid"] as const, [2, "größe"] as const, [3, "paid"] as const])
        await world.store.execute("wait", { account: "acc", runId, waiter: runWaiter(stepId, { event }) });
    }
    const told = await world.store.execute("notify", { account: "acc", event: "paid", body: bytes("x"), runId: "wfr_1", kind: "event" });
    expect(told.notified.map(({ waiter: { runId, id } }) => [runId, id.split("/")[1]])).toEqual([
      ["wfr_1", "1"],
      ["wfr_1", "3"],
    ]);
    const going = await world.store.read.activeRun("acc", "wfr_1");
    expect([going?.active.waiting, going?.active.steps]).toEqual([1, 3]);
    expect((await world.store.read.activeRun("acc", "wfr_2"))?.active.waiting).toBe(3);
  });

  test("waiters of an event are found in all runs of the account, page by page", async () => {
    const world = await opened(open);
    await world.account("other");
    for (const runId of ["a", "b", "c"]) {
      await world.publish([runStart(runId)]);
      await world.store.execute("wait", { account: "acc", runId, waiter: runWaiter(1) });
    }
    await world.publish([runStart("a")], "other");
    await world.store.execute("wait", { account: "other", runId: "a", waiter: runWaiter(1) });
    const { read } = world.store;
    const first = await read.waitersOfEvent("acc", "paid", { limit: 2 });
    const rest = await read.waitersOfEvent("acc", "paid", { after: first.at(-1)?.id ?? "", limit: 2 });
    expect([...first, ...rest].map(({ runId }) => runId)).toEqual(["a", "b", "c"]);
    expect(await read.waitersOfEvent("acc", "pai", { limit: 2 })).toEqual([]);
  });
}

function describeReading(open: OpenStore): void {
  test("runs are listed newest first, page by page, and by what they have", async () => {
    const world = await opened(open);
    for (const [index, runId] of ["a", "b", "a", "c"].entries()) {
      await world.publish([runStart(runId, { labels: index % 2 === 0 ? ["even"] : [], callerIp: null })]);
      await world.store.execute(runId === "c" ? "finishRun" : "cancelRuns", {
        ...{ account: "acc", runId, runIds: [runId], body: bytes("r") },
      });
      world.clock.now += 10;
    }
    const list = async (filter: Parameters<typeof world.store.read.runs>[0]["filter"], count = 9, cursor: string | null = null) => {
      const page = await world.store.read.runs({ account: "acc", filter, cursor, count });
      return { names: page.runs.map(({ runId }) => runId).join(""), cursor: page.cursor };
    };
    expect(await list({})).toEqual({ names: "caba", cursor: null });
    const first = await list({}, 3);
    expect(first.names).toBe("cab");
    expect(await list({}, 3, first.cursor)).toEqual({ names: "a", cursor: null });
    expect((await list({ runIds: ["a"] })).names).toBe("aa");
    expect((await list({ labels: ["even"], states: ["RUN_CANCELED"] })).names).toBe("aa");
    expect((await list({ states: ["RUN_SUCCESS"] })).names).toBe("c");
    expect((await list({ urls: [url], from: world.clock.now - 20, to: world.clock.now - 20 })).names).toBe("a");
    const { runs } = await world.store.read.runs({ account: "acc", filter: { runIds: ["a"] }, cursor: null, count: 9 });
    expect((await list({ runs: runs.slice(1).map(({ runId, createdAt }) => ({ runId, createdAt })) })).names).toBe("a");
  });

  test("a history is read whole, however long, or without its bodies", async () => {
    const world = await opened(open);
    await world.publish([runStart("wfr_1"), ...Array.from({ length: 1_100 }, (_, index) => runStep("wfr_1", index + 1))]);
    const run = await active(world, "wfr_1");
    const history = await world.store.read.history("acc", run.id);
    expect(history.map(({ position }) => position)).toEqual(Array.from({ length: 1_101 }, (_, index) => index));
    const outline = await world.store.read.history("acc", run.id, { bodies: false });
    expect(outline.map(({ messageId }) => messageId)).toEqual(history.map(({ messageId }) => messageId));
    expect(outline.every(({ body }) => body.byteLength === 0)).toBe(true);
  });
}

function describeExpiring(open: OpenStore): void {
  const expire = (world: World, { log = 1_000, deadLetters = 1_000, limit = 100 }) =>
    world.store.execute("expire", { account: "acc", retention: { log, deadLetters }, now: world.clock.now, limit });

  test("a run goes with its history, in portions, when it ended long enough ago", async () => {
    const world = await opened(open);
    await world.publish([runStart("old"), ...[1, 2, 3, 4, 5].map((stepId) => runStep("old", stepId))]);
    await world.publish([runStart("new"), runStep("new", 1)]);
    const [old, other] = [await active(world, "old"), await active(world, "new")];
    for (const delivery of world.delivered()) await world.settle(delivery);
    await world.store.execute("finishRun", { account: "acc", runId: "old", body: bytes("") });
    world.clock.now += 1_001;
    let removed = 0;
    for (let turn = 0, more = true; more && turn < 50; turn++) {
      const answer = await expire(world, { limit: 2 });
      removed += answer.removed;
      more = answer.more;
      const left = await world.store.read.history("acc", old.id);
      if (left.length > 0) expect(await world.store.read.run("acc", old.id)).not.toBeNull();
    }
    expect(removed).toBeGreaterThanOrEqual(7);
    expect([await world.store.read.run("acc", old.id), await world.store.read.history("acc", old.id)]).toEqual([null, []]);
    expect(await positions(world, other.id)).toEqual(["0 i", "1 r1"]);
    expect((await active(world, "new")).id).toBe(other.id);
  });

  test("failed runs that are more than fit into a batch go on all the same, with all that they had", async () => {
    const world = await opened(open);
    const payload = new Uint8Array(7 * 1024 * 1024).fill(65);
    for (const at of [0, 1, 2, 3, 4]) {
      await world.publish([runStart(`wfr_${at}`, { retries: 0, body: payload })]);
      const [delivery] = world.delivered();
      if (delivery) await world.settle(delivery, { status: 500 });
    }
    // A page with the payloads of all of them would be too large.
    const { entries } = await world.store.read.deadLetters({ ...earliest(), bodies: false });
    const resumed = await Promise.all(
      entries.map(({ letter: { id: dlqId } }, at) => {
        const from = at % 2 === 0 ? ("failure" as const) : ("beginning" as const);
        return world.store.execute("resumeRun", { account: "acc", dlqId, from, overrides: {}, logRetention: 1_000 });
      }),
    );
    expect(resumed).toHaveLength(5);
    for (const { runId } of resumed) {
      const run = await active(world, runId);
      expect((await world.store.read.history("acc", run.id)).map(({ body }) => body.byteLength)).toEqual([payload.byteLength]);
    }
  });

  test("a run that has failed stays as long as it can be resumed", async () => {
    const world = await opened(open);
    await world.publish([runStart("wfr_1", { retries: 0 })]);
    const run = await active(world, "wfr_1");
    const [delivery] = world.delivered();
    if (delivery) await world.store.execute("settle", outcomeOf(delivery, { status: 500 }));
    world.clock.now += 1_001;
    await expire(world, { deadLetters: 5_000 });
    expect(await positions(world, run.id)).toEqual(["0 i"]);
    world.clock.now += 4_000;
    await expire(world, { deadLetters: 5_000 });
    expect(await world.store.read.run("acc", run.id)).toBeNull();
    expect(await world.store.read.history("acc", run.id)).toEqual([]);
  });
}
