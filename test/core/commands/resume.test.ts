import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { toTag } from "../../../src/core/search/tags.ts";
import { planResume } from "../../../src/core/commands/resume.ts";
import type { ResumePlan } from "../../../src/core/commands/resume.ts";
import { readRunPart } from "../../../src/core/model/stepId.ts";
import type { Step } from "../../../src/core/model/run.ts";
import { CommandRunner, bytes, callbackTo, makeInput } from "../commandRunner.ts";
import type { Kind, Program } from "./resumeModel.ts";
import { ModelRun } from "./resumeModel.ts";

const step = (slot: string, position: number): Step => ({
  account: "acme",
  id: `run_1/${slot}`,
  run: "run_1",
  position,
  messageId: `m-${slot}`,
  createdAt: 0,
  head: null,
  callType: slot.startsWith("c") ? "toCallback" : slot.startsWith("f") ? "fromCallback" : "step",
  url: "https://app.example",
  headers: [],
  body: new Uint8Array(0),
});

const shown = (plan: ResumePlan): string =>
  plan.map(({ step: { id }, resend }) => `${readRunPart(id)}${resend ? "!" : ""}${resend?.notBefore === 5 ? "5" : ""}`).join(" ");

/** Words are the places of a history; the second text names those whose messages were not finished, one that slept with `+`. */
function resumed(history: string, unfinished: string): string {
  const steps = history.split(" ").map(step);
  const names = unfinished.split(" ").filter((name) => name !== "");
  return shown(planResume(steps, new Map(names.map((name) => [`m-${name.replace("+", "")}`, name.endsWith("+") ? 5 : null]))));
}

describe("what is sent again", () => {
  test.each([
    ["the initial payload, when nothing came of it", "i", "i", "i!"],
    ["the last result", "i r1 r2", "r2", "i r1 r2!"],
    ["not the initial payload, when steps have come of it", "i r1 r2", "i r2+", "i r1 r2!5"],
    ["not a result that the next step has come of", "i r1 r2", "r1 r2", "i r1 r2!"],
    ["not a result that a plan has come of", "i r1 p2 p3", "r1 p2 p3", "i r1 p2! p3!"],
    ["the plan that failed", "i p1 p2 r1", "p2", "i p1 p2! r1"],
    ["a plan that slept, for the rest of its time", "i p1 p2 p3 r1", "p2 p3+", "i p1 p2! p3!5 r1"],
    ["a plan that had been delivered, and waited for something", "i p1 p2 p3 r1", "p2", "i p1 p2! p3! r1"],
    ["not a result that is put aside until the others have theirs", "i p1 p2 r1", "p2 r1", "i p1 p2! r1"],
    ["of a group that is complete, the result that completed it", "i p1 p2 r2 r1", "r2", "i p1 p2 r2 r1!"],
    ["neither of a group that the next step has come of", "i p1 p2 r1 r2 r3", "r1 r3", "i p1 p2 r1 r2 r3!"],
    ["the answer of a third party", "i c1 f1", "f1", "i c1 f1!"],
    ["an answer that was delivered, and no result came of", "i p1 p2 c2 f2 r1", "p1", "i p1 p2 c2 f2! r1"],
    ["not an answer whose result has come", "i c1 f1 r1", "f1 r1", "i c1 f1 r1!"],
    ["the plan of a request that has no answer", "i p1 p2 c1", "p2 c1", "i p1! p2!"],
    ["what a request without a plan and an answer came from", "i c1", "i c1", "i!"],
    ["the same behind a group", "i p1 p2 r1 r2 c3", "r1 c3", "i p1 p2 r1 r2!"],
    ["the last result, when a wait or another run came of it", "i p1 p2 r1 r2", "r1", "i p1 p2 r1 r2!"],
    ["the plan, besides the result of another run that was noted later", "i p1 p2 r1", "p2", "i p1 p2! r1"],
    ["the result that was noted later, when it was the last one missing", "i p1 p2 r2 r1", "r2", "i p1 p2 r2 r1!"],
    ["what cannot be read, when it was on its way", "i x1 r1", "x1", "i x1! r1!"],
    ["what cannot be read, when it came last", "i r1 x2", "", "i r1 x2!"],
  ])("%s", (_, history, unfinished, expected) => {
    expect(resumed(history, unfinished)).toBe(expected);
  });
});

const kinds = fc.constantFrom<Kind>("run", "sleep", "wait", "call", "invoke");
const programs: fc.Arbitrary<Program> = fc.array(fc.array(kinds, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 4 });
const choices = fc.infiniteStream(fc.nat({ max: 1_000 }));

/** Does one of the things that may happen next. False: nothing can. */
function happen(run: ModelRun, pick: (below: number) => number, { losing }: { losing: boolean }): boolean {
  const outside = [...run.calls, ...run.waiting];
  const all = run.sent.length + outside.length;
  if (all === 0) return false;
  const which = pick(all);
  const number = outside[which - run.sent.length];
  if (number === undefined) run.deliver(which, { answered: !losing || pick(3) > 0 });
  else run.answer(number);
  return true;
}

/** Lets a run fail with one of its messages, and resumes it. Checks what holds whatever the history. */
function failAndResume(run: ModelRun, program: Program, of: { failing: number; late: number; name: string }): ModelRun {
  const unfinished = run.unfinished(of.failing);
  // A run that was invoked may end later, and its result is only noted then.
  for (const number of run.waiting.filter((number) => program.flat()[number - 1] === "invoke").slice(of.late)) run.answer(number);
  const next = new ModelRun(program, of.name, planResume(run.steps, unfinished));
  expect(next.steps.map(({ position }) => position)).toEqual(next.steps.map((_, at) => at));
  expect(next.sent.length).toBeGreaterThan(0);
  expect(next.sent.every(({ step }) => step.callType !== "toCallback")).toBe(true);
  const slots = slotsOf(next);
  for (const slot of slotsOf(run)) if (!slot.startsWith("c")) expect(slots).toContain(slot);
  return next;
}

const slotsOf = (run: ModelRun): string[] => run.steps.map(({ id }) => readRunPart(id));

/** What was there when the run began was not made again. */
function expectKept(run: ModelRun, had: readonly string[]): void {
  for (const number of run.ran) {
    expect(had).not.toContain(`r${number}`);
    // What has the answer of a third party does not ask it again.
    expect(had).not.toContain(`f${number}`);
  }
}

describe("a workflow that fails anywhere, and is resumed", () => {
  test("comes through, runs no step again that has its result, and keeps a history without gaps", () => {
    let failed = 0;
    fc.assert(
      fc.property(programs, choices, fc.integer({ min: 1, max: 3 }), (program, stream, failures) => {
        const pick = (below: number): number => Number(stream.next().value) % below;
        const count = program.flat().length;
        let run = new ModelRun(program, "run0");
        let had: string[] = [];
        for (let failure = 1; failure <= failures && !run.finished; failure++) {
          for (let events = pick(4 * count); events > 0 && !run.finished; events--) happen(run, pick, { losing: true });
          // Only a message to the endpoint lets a run fail.
          if (run.finished || run.sent.length === 0) break;
          expectKept(run, had);
          run = failAndResume(run, program, { failing: pick(run.sent.length), late: pick(3), name: `run${failure}` });
          had = slotsOf(run);
          failed++;
        }
        for (let events = 0; !run.finished; events++) {
          expect(happen(run, pick, { losing: false })).toBe(true);
          expect(events).toBeLessThan(20 * count + 20);
        }
        expectKept(run, had);
        for (let number = 1; number <= count; number++) expect(run.hasResult(number)).toBe(true);
      }),
      { numRuns: 1_000 },
    );
    expect(failed).toBeGreaterThan(500);
  });
});

describe("a history that is copied", () => {
  const endpoint = "https://app.example/order";
  const features = { lazyFetch: true, initialBody: true, detect: false, captured: true };

  async function post(broker: CommandRunner, letter: Partial<Parameters<typeof makeInput>[0]>): Promise<string> {
    const [result] = await broker.run("publish", { account: "acme", inputs: [makeInput({ url: endpoint, ...letter })] });
    if (result && "messageId" in result) return result.messageId;
    throw new Error(JSON.stringify(result));
  }

  /** A history of the payload, a request to a third party that has no answer, and a post that cannot be read, which fails. */
  async function failedRun(): Promise<{ broker: CommandRunner; dlqId: string }> {
    const broker = await CommandRunner.open();
    const start = { kind: "start", runId: "wfr_1", url: endpoint, features, origin: "sdk", invoker: null } as const;
    const first = await post(broker, { post: start, retries: 0 });
    await broker.settle(first, { status: 200 });
    const head = { stepId: 1, stepName: "ask", stepType: "Call", concurrent: 1 };
    await post(broker, { url: "https://third.example", post: { kind: "call", runId: "wfr_1", head } });
    const unreadable = await post(broker, { body: bytes("?"), post: { kind: "step", runId: "wfr_1", head: null } });
    await broker.settle(unreadable, { status: 500 });
    return { broker, dlqId: broker.deadLetters[0]?.id ?? "" };
  }

  const historyOf = (broker: CommandRunner, run: string): string[] =>
    [...broker.memory.tables.steps.values()]
      .filter((one) => one.run === run)
      .sort((a, b) => a.position - b.position)
      .map(({ id, position }) => `${readRunPart(id)}@${position}`);

  test("gives what is called by its place its new place, so that nothing that comes later takes it", async () => {
    const { broker, dlqId } = await failedRun();
    const { runId } = await broker.run("resumeRun", { account: "acme", dlqId, from: "failure", overrides: {}, logRetention: 0 });
    const run = [...broker.memory.tables.runs.values()].find((one) => one.runId === runId);
    expect(historyOf(broker, run?.id ?? "")).toEqual(["i@0", "x1@1"]);
    await post(broker, { body: bytes("!"), post: { kind: "step", runId, head: null } });
    expect(historyOf(broker, run?.id ?? "")).toEqual(["i@0", "x1@1", "x2@2"]);
    expect(run?.origin).toBe([...broker.memory.tables.runs.values()][0]?.id);
  });

  test("must be whole, or at least have its payload where the run is restarted", async () => {
    const { broker, dlqId } = await failedRun();
    const [run] = broker.memory.tables.runs.keys();
    const key = run?.replace("acme\n", "") ?? "";
    const ask = (from: "failure" | "beginning") =>
      broker.run("resumeRun", { account: "acme", dlqId, from, overrides: {}, logRetention: 0 });
    broker.memory.tables.steps.delete(`acme\n${key}/c1`);
    await expect(ask("failure")).rejects.toThrow("is not kept any more");
    broker.memory.tables.steps.delete(`acme\n${key}/i`);
    await expect(ask("beginning")).rejects.toThrow("is not kept any more");
    expect(broker.deadLetters).toHaveLength(1);
  });

  const hour = 3_600_000;

  /** A run with a failure callback that failed, too, and two steps that have results. */
  async function longFailed({ initialBody = true } = {}): Promise<{ broker: CommandRunner; dlqId: string; key: string }> {
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
    const one = await post(broker, { body: bytes("one"), post: { kind: "step", runId: "wfr_1", head: head(1) } });
    await broker.settle(one, { status: 200 });
    const two = await post(broker, { body: bytes("two"), post: { kind: "step", runId: "wfr_1", head: head(2) } });
    await broker.settle(two, { status: 500 });
    const [callback] = broker.deliveries;
    await broker.settle(callback?.message.id ?? "", { host: "told.example", status: 500 });
    return { broker, dlqId: broker.deadLetters[0]?.id ?? "", key: [...broker.memory.tables.runs.values()][0]?.id ?? "" };
  }

  const expire = (broker: CommandRunner, { log = hour, deadLetters = 10 * hour, limit = 100 } = {}) =>
    broker.run("expire", { account: "acme", retention: { log, deadLetters }, now: broker.now, limit });

  test("is whole, however long ago the log of the run has gone", async () => {
    const { broker, dlqId } = await longFailed();
    broker.now += 5 * hour;
    while ((await expire(broker, { limit: 2 })).more);
    const { log, storedMessages } = broker.memory.tables;
    // What failed is shown by the dead letter.
    expect([log.size, storedMessages.size]).toEqual([0, 1]);
    await broker.run("repeatFailureCallback", { account: "acme", dlqId });
    expect(broker.deliveries.map(({ message }) => JSON.parse(new TextDecoder().decode(message.body)).sourceBody)).toEqual([
      btoa("payload"),
    ]);
    const { runId } = await broker.run("resumeRun", { account: "acme", dlqId, from: "failure", overrides: {}, logRetention: hour });
    const sent = broker.deliveries.map(({ message }) => JSON.parse(new TextDecoder().decode(message.body)));
    expect(sent.map((entries: { body: string }[]) => entries.map(({ body }) => atob(body)))).toEqual([["payload", "one", "two"]]);
    const run = [...broker.memory.tables.runs.values()].find((one) => one.runId === runId);
    expect(historyOf(broker, run?.id ?? "")).toEqual(["i@0", "r1@1", "r2@2"]);
  });

  test.each([
    [true, "is not kept any more"],
    [false, "is not kept any more"],
  ])("that goes at the end of its time is not used in parts (%s)", async (initialBody, words) => {
    const { broker, dlqId, key } = await longFailed({ initialBody });
    const { deadLetters } = broker.memory.tables;
    const [letter] = deadLetters.values();
    // Others are older, so that the entry goes later than the first steps.
    for (const id of ["0000000000001-0", "0000000000002-0"])
      if (letter) deadLetters.set(`acme\n${id}`, { ...letter, id, messageId: id, tags: [] });
    broker.now += 11 * hour;
    await expire(broker, { limit: 1 });
    expect([historyOf(broker, key), deadLetters.has(`acme\n${dlqId}`)]).toEqual([["r1@1", "r2@2"], true]);
    const before = structuredClone(broker.memory.tables);
    for (const from of ["failure", "beginning"] as const)
      await expect(broker.run("resumeRun", { account: "acme", dlqId, from, overrides: {}, logRetention: hour })).rejects.toThrow(words);
    await expect(broker.run("repeatFailureCallback", { account: "acme", dlqId })).rejects.toThrow(words);
    expect(broker.memory.tables).toEqual(before);
    while ((await expire(broker, { limit: 1 })).more);
    await expect(broker.run("repeatFailureCallback", { account: "acme", dlqId })).rejects.toThrow("there is no failed run");
  });

  test("is not there any more when its entry was deleted", async () => {
    const { broker, dlqId } = await failedRun();
    expect(await broker.run("deleteDeadLetters", { account: "acme", dlqIds: [dlqId], logRetention: 0 })).toEqual({ deleted: 1 });
    await expect(broker.run("resumeRun", { account: "acme", dlqId, from: "beginning", overrides: {}, logRetention: 0 })).rejects.toThrow(
      "there is no failed run",
    );
  });
});

describe("a dead letter of a run", () => {
  test("is found by the URL of its workflow, and by that where its message went", async () => {
    const broker = await CommandRunner.open();
    const start = { kind: "start", runId: "wfr_1", url: "https://app.example/flow", origin: "sdk", invoker: null } as const;
    const features = { lazyFetch: true, initialBody: true, detect: false, captured: true };
    const inputs = [makeInput({ url: "https://proxy.example", retries: 0, post: { ...start, features } })];
    const [first] = await broker.run("publish", { account: "acme", inputs });
    await broker.settle(first && "messageId" in first ? first.messageId : "", { host: "proxy.example" });
    const marks = broker.deadLetters[0]?.tags ?? [];
    for (const url of ["https://app.example/flow", "https://proxy.example"]) expect(marks).toContain(toTag.url(url));
    expect(marks).toEqual([...new Set(marks)]);
  });
});
