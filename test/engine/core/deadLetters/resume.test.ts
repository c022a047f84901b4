import { describe, expect, test } from "vitest";
import { toTag } from "../../../../src/engine/core/search/tags.ts";
import { readRunPart } from "../../../../src/engine/core/model/stepId.ts";
import { CommandRunner, bytes, callbackTo, makeInput } from "../commandRunner.ts";
import { makeDeletion } from "../../../makeDeletion.ts";

describe("a copied history", () => {
  const endpoint = "https://app.example/order";
  const features = { lazyFetch: true, initialBody: true, detect: false, captured: true };

  async function post(
    broker: CommandRunner,
    letter: Partial<Parameters<typeof makeInput>[0]>,
  ): Promise<string> {
    const [result] = await broker.run("publish", {
      account: "acme",
      inputs: [makeInput({ url: endpoint, ...letter })],
    });
    if (result && "messageId" in result) return result.messageId;
    throw new Error(JSON.stringify(result));
  }

  /**
   * A history of the payload, a request to a third party without a response, and an unreadable post, which
   * fails.
   */
  async function failedRun(): Promise<{ broker: CommandRunner; dlqId: string }> {
    const broker = await CommandRunner.open();
    const start = {
      kind: "start",
      runId: "wfr_1",
      url: endpoint,
      features,
      origin: "sdk",
      invoker: null,
    } as const;
    const first = await post(broker, { post: start, retries: 0 });
    await broker.settle(first, { status: 200 });
    const head = { stepId: 1, stepName: "ask", stepType: "Call", concurrent: 1 };
    await post(broker, { url: "https://third.example", post: { kind: "call", runId: "wfr_1", head } });
    const unreadable = await post(broker, {
      body: bytes("?"),
      post: { kind: "step", runId: "wfr_1", head: null },
    });
    await broker.settle(unreadable, { status: 500 });
    return { broker, dlqId: broker.deadLetters[0]?.id ?? "" };
  }

  const historyOf = (broker: CommandRunner, run: string): string[] =>
    [...broker.memory.tables.steps.values()]
      .filter((one) => one.run === run)
      .sort((a, b) => a.position - b.position)
      .map(({ id, position }) => `${readRunPart(id)}@${position}`);

  test("names an unreadable step by its new position, so that no later step takes its name", async () => {
    const { broker, dlqId } = await failedRun();
    const { runId } = await broker.run("resumeRun", {
      account: "acme",
      dlqId,
      from: "failure",
      overrides: {},
      logRetention: 0,
    });
    const run = [...broker.memory.tables.runs.values()].find((one) => one.runId === runId);
    expect(historyOf(broker, run?.id ?? "")).toEqual(["i@0", "x1@1"]);
    await post(broker, { body: bytes("!"), post: { kind: "step", runId, head: null } });
    expect(historyOf(broker, run?.id ?? "")).toEqual(["i@0", "x1@1", "x2@2"]);
    expect(run?.origin).toBe([...broker.memory.tables.runs.values()][0]?.id);
  });

  test("must be complete, or at least have its payload if the run is restarted", async () => {
    const { broker, dlqId } = await failedRun();
    const [run] = broker.memory.tables.runs.keys();
    const key = run?.replace("acme\n", "") ?? "";
    const ask = (from: "failure" | "beginning") =>
      broker.run("resumeRun", { account: "acme", dlqId, from, overrides: {}, logRetention: 0 });
    broker.memory.tables.steps.delete(`acme\n${key}/c1`);
    await expect(ask("failure")).rejects.toThrow("has expired");
    broker.memory.tables.steps.delete(`acme\n${key}/i`);
    await expect(ask("beginning")).rejects.toThrow("has expired");
    expect(broker.deadLetters).toHaveLength(1);
  });

  const hour = 3_600_000;

  /** A failed run whose failure callback failed as well, and two steps that have results. */
  async function longFailed({ initialBody = true } = {}): Promise<{
    broker: CommandRunner;
    dlqId: string;
    key: string;
  }> {
    const broker = await CommandRunner.open();
    const start = {
      kind: "start",
      runId: "wfr_1",
      url: endpoint,
      features: { ...features, initialBody },
      origin: "sdk",
      invoker: null,
    } as const;
    const failureCallback = { ...callbackTo("https://told.example"), retries: 0 };
    const first = await post(broker, { body: bytes("payload"), post: start, retries: 0, failureCallback });
    await broker.settle(first, { status: 200 });
    const head = (stepId: number) => ({ stepId, stepName: "s", stepType: "Run", concurrent: 1 });
    const one = await post(broker, {
      body: bytes("one"),
      post: { kind: "step", runId: "wfr_1", head: head(1) },
    });
    await broker.settle(one, { status: 200 });
    const two = await post(broker, {
      body: bytes("two"),
      post: { kind: "step", runId: "wfr_1", head: head(2) },
    });
    await broker.settle(two, { status: 500 });
    const [callback] = broker.deliveries;
    await broker.settle(callback?.message.id ?? "", { host: "told.example", status: 500 });
    return {
      broker,
      dlqId: broker.deadLetters[0]?.id ?? "",
      key: [...broker.memory.tables.runs.values()][0]?.id ?? "",
    };
  }

  const expire = (broker: CommandRunner, { log = hour, deadLetters = 10 * hour, limit = 100 } = {}) =>
    broker.run("expire", { account: "acme", retention: { log, deadLetters }, now: broker.now, limit });

  test("is complete, no matter how long ago the log of the run has expired", async () => {
    const { broker, dlqId } = await longFailed();
    broker.now += 5 * hour;
    while ((await expire(broker, { limit: 2 })).more);
    const { log, storedMessages } = broker.memory.tables;
    // The dead letter shows the failed step.
    expect([log.size, storedMessages.size]).toEqual([0, 1]);
    await broker.run("repeatFailureCallback", { account: "acme", dlqId });
    expect(
      broker.deliveries.map(({ message }) => JSON.parse(new TextDecoder().decode(message.body)).sourceBody),
    ).toEqual([btoa("payload")]);
    const { runId } = await broker.run("resumeRun", {
      account: "acme",
      dlqId,
      from: "failure",
      overrides: {},
      logRetention: hour,
    });
    const sent = broker.deliveries.map(({ message }) => JSON.parse(new TextDecoder().decode(message.body)));
    expect(sent.map((entries: { body: string }[]) => entries.map(({ body }) => atob(body)))).toEqual([
      ["payload", "one", "two"],
    ]);
    const run = [...broker.memory.tables.runs.values()].find((one) => one.runId === runId);
    expect(historyOf(broker, run?.id ?? "")).toEqual(["i@0", "r1@1", "r2@2"]);
  });

  test.each([
    [true, "has expired"],
    [false, "has expired"],
  ])("is not used in parts while it expires (%s)", async (initialBody, words) => {
    const { broker, dlqId, key } = await longFailed({ initialBody });
    const { deadLetters } = broker.memory.tables;
    const [letter] = deadLetters.values();
    // Other dead letters are older, so this one is removed later than the first steps.
    for (const id of ["0000000000001-0", "0000000000002-0"])
      if (letter) deadLetters.set(`acme\n${id}`, { ...letter, id, messageId: id, tags: [] });
    broker.now += 11 * hour;
    await expire(broker, { limit: 1 });
    expect([historyOf(broker, key), deadLetters.has(`acme\n${dlqId}`)]).toEqual([["r1@1", "r2@2"], true]);
    const before = structuredClone(broker.memory.tables);
    for (const from of ["failure", "beginning"] as const)
      await expect(
        broker.run("resumeRun", { account: "acme", dlqId, from, overrides: {}, logRetention: hour }),
      ).rejects.toThrow(words);
    await expect(broker.run("repeatFailureCallback", { account: "acme", dlqId })).rejects.toThrow(words);
    expect(broker.memory.tables).toEqual(before);
    while ((await expire(broker, { limit: 1 })).more);
    await expect(broker.run("repeatFailureCallback", { account: "acme", dlqId })).rejects.toThrow(
      "no failed run",
    );
  });

  test("cannot be used when its dead letter was deleted", async () => {
    const { broker, dlqId } = await failedRun();
    expect(
      await broker.run("bulk", makeDeletion({ account: "acme", dlqIds: [dlqId], logRetention: 0 })),
    ).toMatchObject({ done: 1 });
    await expect(
      broker.run("resumeRun", { account: "acme", dlqId, from: "beginning", overrides: {}, logRetention: 0 }),
    ).rejects.toThrow("no failed run");
  });
});

describe("a dead letter of a run", () => {
  test("is found by the URL of its workflow and by the URL of its message", async () => {
    const broker = await CommandRunner.open();
    const start = {
      kind: "start",
      runId: "wfr_1",
      url: "https://app.example/flow",
      origin: "sdk",
      invoker: null,
    } as const;
    const features = { lazyFetch: true, initialBody: true, detect: false, captured: true };
    const inputs = [makeInput({ url: "https://proxy.example", retries: 0, post: { ...start, features } })];
    const [first] = await broker.run("publish", { account: "acme", inputs });
    await broker.settle(first && "messageId" in first ? first.messageId : "", { host: "proxy.example" });
    const marks = broker.deadLetters[0]?.tags ?? [];
    for (const url of ["https://app.example/flow", "https://proxy.example"])
      expect(marks).toContain(toTag.url(url));
    expect(marks).toEqual([...new Set(marks)]);
  });
});
