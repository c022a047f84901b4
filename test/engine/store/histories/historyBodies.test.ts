import { describe, expect, test } from "vitest";
import type { Rows } from "../../../../src/engine/core/decision/command.ts";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import { formatHistory, type Step } from "../../../../src/engine/core/model/run.ts";
import { lazyHistoryBytes } from "../../../../src/engine/core/values/limits.ts";
import { HistoryBodies, type HistorySources } from "../../../../src/engine/store/histories/historyBodies.ts";
import type { HistoryNeed } from "../../../../src/engine/store/batch/loader.ts";
import { RecentHistories } from "../../../../src/engine/store/histories/recentHistories.ts";
import type { BatchResult } from "../../../../src/engine/store/store.ts";
import {
  CommandRunner,
  bytes,
  callbackTo,
  makeInput,
  noCapacity,
  ampleCapacity,
} from "../../core/commandRunner.ts";

const endpoint = "https://app.example/order";
const features = { lazyFetch: true, initialBody: true, detect: false, captured: true };
const plan = (targetStep: number) => ({
  stepId: 0,
  stepName: "s",
  stepType: "Run",
  concurrent: 3,
  targetStep,
});

const endOf = (broker: CommandRunner) => ({
  states: [...broker.memory.tables.messages.values()],
  dead: broker.deadLetters,
});

describe("a message without its whole history", () => {
  const start = makeInput({
    url: endpoint,
    post: { kind: "start", runId: "wfr_1", url: endpoint, features, origin: "sdk", invoker: null },
  });
  const sleep = makeInput({
    url: endpoint,
    delay: 1_000,
    body: bytes("{}"),
    post: { kind: "step", runId: "wfr_1", head: plan(1) },
  });
  const call = makeInput({
    url: "https://third.example",
    retries: 0,
    callback: callbackTo(endpoint),
    post: { kind: "call", runId: "wfr_1", head: { ...plan(1), stepId: 1 } },
  });

  test.each([
    ["all of it", (): boolean => true],
    ["one entry", ({ position }: Step): boolean => position === 1],
    ["its own entry", ({ position }: Step): boolean => position === 2],
  ])("is not sent, and fails with a fault in the log, if %s is missing", async (_, isGone) => {
    const broker = await CommandRunner.open();
    await broker.run("publish", { account: "acme", inputs: [start] });
    for (const target of [1, 2]) {
      const head = plan(target);
      await broker.publish({ ...sleep, post: { kind: "step", runId: "wfr_1", head } });
    }
    const { steps } = broker.memory.tables;
    for (const [key, step] of steps) if (isGone(step)) steps.delete(key);
    broker.now += 1_000;
    await broker.run("claim", { limit: 10 });
    const bad = broker.deliveries.filter(({ unsendable }) => unsendable !== undefined);
    const last = bad.at(-1);
    expect(last).toMatchObject({
      unsendable: "the history of the run is missing or damaged",
      message: { run: { position: 2 } },
    });
    expect(bad.map(({ message }) => message.body.byteLength)).toEqual(bad.map(() => 0));
    expect(broker.faults).toContain(
      `message ${last?.message.id} of account acme is not sent: the history of the run is missing or damaged`,
    );
    const outcome = {
      status: null,
      headers: [],
      body: bytes(""),
      error: last?.unsendable ?? "",
      isFinal: true,
    } as const;
    expect(await broker.settle(last?.message.id ?? "", outcome)).toBe("failed");
    expect(endOf(broker).dead).toMatchObject([
      { error: "the history of the run is missing or damaged", run: { runId: "wfr_1" } },
    ]);
  });

  test("is not sent, and fails silently, if the retention of its ended run is over", async () => {
    const broker = await CommandRunner.open();
    const messageId = await broker.publish(start);
    await broker.run("finishRun", { account: "acme", runId: "wfr_1", body: bytes("") });
    const { steps, runs, messages } = broker.memory.tables;
    for (const table of [steps, runs]) table.clear();
    for (const [key, state] of messages)
      messages.set(key, { ...state, state: "pending", leasedBy: null, dueAt: broker.now });
    await broker.run("claim", { limit: 10 });
    expect(broker.deliveries).toMatchObject([
      { unsendable: "the history of the run is missing or damaged", message: { id: messageId } },
    ]);
    expect(await broker.settle(messageId, { status: null, error: "x", isFinal: true })).toBe("failed");
    expect(broker.log(messageId)).toContain("CANCELLED");
    expect(endOf(broker)).toEqual({ states: [], dead: [] });
  });

  test("is not sent, and fails, if the answer of a third party is missing", async () => {
    const broker = await CommandRunner.open();
    await broker.publish(start);
    const asked = await broker.publish(call);
    broker.capacity = noCapacity;
    await broker.settle(asked, { host: "third.example", status: 200, body: bytes("yes") });
    const { steps } = broker.memory.tables;
    for (const [key, { callType }] of steps) if (callType === "fromCallback") steps.delete(key);
    broker.capacity = ampleCapacity;
    await broker.run("claim", { limit: 10 });
    expect(broker.deliveries).toMatchObject([
      {
        unsendable: "the history of the run is missing or damaged",
        message: { run: { kind: "result" } },
      },
    ]);
    expect(broker.faults).toHaveLength(1);
  });
});

/** The steps of a run in a storage that several nodes share. */
type Stored = { steps: Step[]; firstMessage: string };

/** The batches of one node that keeps histories. */
class Node {
  readonly recent = new RecentHistories();
  readonly asked: HistoryNeed[] = [];
  readonly #stored: Stored;

  constructor(stored: Stored) {
    this.#stored = stored;
  }

  /**
   * Runs a batch that creates steps and sends the calls of some positions. Returns what they carry, or null
   * if a call is not sent. `reads`: whether the batch has read the active run. `readsNow`: whether the
   * storage reads rows at once.
   */
  async batch(
    created: readonly Step[],
    sent: readonly number[],
    { isStored = true, ended = false, reads = true, readsNow = false } = {},
  ): Promise<(string | null)[]> {
    const { steps, firstMessage } = this.#stored;
    const result: BatchResult = {
      replies: [],
      deliveries: sent.map(makeCall),
      abortedLeases: [],
      settledLeases: [],
      dueAt: null,
      faults: [],
      activities: [],
      changedRows: 0,
    };
    const changes = (table: string): unknown[] => {
      if (table === "activeRuns") return ended ? [{ key: ["acc", "wfr_1"], before: { run: "run_1" } }] : [];
      return created.map((now) => ({ key: ["acc", now.id], loaded: true, before: undefined, now }));
    };
    const active = { run: "run_1", firstMessage } as Rows["activeRuns"];
    const peek = (): unknown => (reads && !ended ? active : undefined);
    const set = { changes, peek, isKnown: () => reads } as HistorySources["set"];
    const loader: HistorySources["loader"] = {
      rows: async () => [],
      // The storage has the rows from before the batch.
      now: readsNow ? { row: () => active as never, runRows: () => ({}) as never } : null,
      histories: async (needs) => {
        this.asked.push(...needs);
        return needs.map(({ from, upTo }) =>
          steps
            .filter(({ position }) => position >= from && position <= upTo)
            .sort((one, other) => one.position - other.position),
        );
      },
    };
    const bodies = new HistoryBodies(result, { set, loader, recent: this.recent });
    steps.push(...created);
    await bodies.load();
    if (!isStored) {
      for (const step of created) steps.splice(steps.indexOf(step), 1);
      return [];
    }
    return bodies
      .finish()
      .deliveries.map(({ history, unsendable }) =>
        history ? Buffer.concat(history.parts).toString() : unsendable ? null : "",
      );
  }
}

const store = (steps: readonly Step[] = []): Stored => ({ steps: [...steps], firstMessage: "msg_0" });

const makeCall = (position: number): Delivery =>
  ({
    attempt: 0,
    message: {
      account: "acc",
      id: `msg_${position}`,
      run: { run: "run_1", kind: "step", position, size: 1 },
    },
  }) as unknown as Delivery;

const makeStep = (position: number, text = `result ${position}`): Step =>
  ({
    account: "acc",
    id: `run_1/r${position}`,
    run: "run_1",
    position,
    messageId: `msg_${position}`,
    callType: "step",
    body: bytes(text),
  }) as unknown as Step;

describe("histories that a node keeps", () => {
  const format = (steps: readonly Step[]): string => new TextDecoder().decode(formatHistory(steps));
  const steps = Array.from({ length: 9 }, (_, position) => makeStep(position));
  const upTo = (position: number): string => format(steps.slice(0, position + 1));

  test("are not read again, however many calls carry them", async () => {
    const node = new Node(store());
    expect(await node.batch(steps.slice(0, 1), [0])).toEqual([upTo(0)]);
    expect(await node.batch(steps.slice(1, 4), [3, 1, 2])).toEqual([upTo(3), upTo(1), upTo(2)]);
    expect(await node.batch([], [2, 0])).toEqual([upTo(2), upTo(0)]);
    expect(node.asked).toEqual([]);
  });

  test("are read once if the node has not sent them, and from then on continued", async () => {
    const node = new Node(store(steps.slice(0, 5)));
    expect(await node.batch(steps.slice(5, 6), [5, 4])).toEqual([upTo(5), upTo(4)]);
    expect(await node.batch(steps.slice(6, 7), [6])).toEqual([upTo(6)]);
    expect(node.asked).toEqual([{ account: "acc", run: "run_1", from: 0, upTo: 5 }]);
  });

  test("are read from the first step that another node has stored", async () => {
    const stored = store();
    const [one, other] = [new Node(stored), new Node(stored)];
    await one.batch(steps.slice(0, 2), [1]);
    expect(await other.batch(steps.slice(2, 4), [3])).toEqual([upTo(3)]);
    expect(await one.batch(steps.slice(4, 5), [4])).toEqual([upTo(4)]);
    expect(await other.batch([], [4])).toEqual([upTo(4)]);
    expect(one.asked).toEqual([{ account: "acc", run: "run_1", from: 2, upTo: 4 }]);
    expect(other.asked.map(({ from }) => from)).toEqual([0, 4]);
  });

  test("grow with steps that are not sent at once", async () => {
    const node = new Node(store());
    await node.batch(steps.slice(0, 1), [0]);
    await node.batch(steps.slice(1, 3), []);
    expect(await node.batch([], [2])).toEqual([upTo(2)]);
    expect(node.asked).toEqual([]);
  });

  test("have nothing of a batch that is not stored", async () => {
    const node = new Node(store());
    await node.batch(steps.slice(0, 1), [0]);
    await node.batch([makeStep(1, "lost")], [1], { isStored: false });
    expect(await node.batch(steps.slice(1, 2), [1])).toEqual([upTo(1)]);
  });

  test("are read again if a step takes the position of one that the storage has lost", async () => {
    const stored = store(steps.slice(0, 3));
    const node = new Node(stored);
    await node.batch([makeStep(3, "lost"), makeStep(4, "lost too")], [4]);
    stored.steps.splice(3);
    expect(await node.batch(steps.slice(3, 4), [3])).toEqual([upTo(3)]);
    expect(node.asked.map(({ from }) => from)).toEqual([0, 0]);
  });

  test("are read again if another node has restarted the run", async () => {
    const stored = store(steps.slice(0, 2));
    const node = new Node(stored);
    await node.batch([], [1]);
    const restarted = { ...makeStep(0), messageId: "msg_again" };
    stored.steps.splice(0, 1, restarted);
    stored.firstMessage = "msg_again";
    const expected = format([restarted, ...steps.slice(1, 3)]);
    expect(await node.batch(steps.slice(2, 3), [2])).toEqual([expected]);
    expect(await node.batch([], [2])).toEqual([expected]);
    expect(node.asked.map(({ from }) => from)).toEqual([0, 0]);
  });

  test("are read again if the batch has not read whether the run was restarted", async () => {
    const node = new Node(store());
    await node.batch(steps.slice(0, 2), [1]);
    expect(await node.batch([], [1], { reads: false })).toEqual([upTo(1)]);
    expect(await node.batch([], [1])).toEqual([upTo(1)]);
    expect(node.asked.map(({ from }) => from)).toEqual([0]);
  });

  test("are not read again if the storage says at once that the run was not restarted", async () => {
    const node = new Node(store());
    await node.batch(steps.slice(0, 2), [1]);
    expect(await node.batch([], [1], { reads: false, readsNow: true })).toEqual([upTo(1)]);
    expect(node.asked).toEqual([]);
  });

  test("are read again if the batch has ended the run, which it may have restarted before", async () => {
    const stored = store(steps.slice(0, 2));
    const node = new Node(stored);
    await node.batch([], [1]);
    const restarted = { ...makeStep(0), messageId: "msg_again" };
    stored.steps.splice(0, 1, restarted);
    const sent = await node.batch([], [0], { ended: true, readsNow: true });
    expect(sent).toEqual([format([restarted])]);
  });

  test("are forgotten when the run has ended", async () => {
    const node = new Node(store());
    await node.batch(steps.slice(0, 2), [1]);
    expect(node.recent.memory).toBeGreaterThan(0);
    await node.batch(steps.slice(2, 3), [], { ended: true });
    expect(node.recent.memory).toBe(0);
  });

  test("are forgotten without being encoded if they become too long to be sent", async () => {
    const node = new Node(store());
    await node.batch(steps.slice(0, 1), [0]);
    await node.batch([makeStep(1, "x".repeat(lazyHistoryBytes))], []);
    expect(node.recent.memory).toBe(0);
    expect(await node.batch(steps.slice(2, 3), [])).toEqual([]);
    expect(node.recent.memory).toBe(0);
  });

  test("are sent up to a gap only, and the rest is not sent", async () => {
    const node = new Node(store([...steps.slice(0, 2), ...steps.slice(3, 5)]));
    expect(await node.batch([], [1, 4, 0, 3])).toEqual([upTo(1), null, upTo(0), null]);
  });
});
