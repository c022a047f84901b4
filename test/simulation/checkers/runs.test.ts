import { describe, expect, test } from "vitest";
import type { CommandInput, CommandName, CommandResult } from "../../../src/engine/store/catalog/commands.ts";
import type { RunPart, RunPost } from "../../../src/engine/core/model/runPost.ts";
import { createIdGenerator } from "../../../src/engine/core/values/ids.ts";
import { hour } from "../../../src/engine/core/values/time.ts";
import { ampleCapacity, bytes, makeInput, makeOutcome, noon } from "../../engine/core/commandRunner.ts";
import { withSentBody } from "../../sentBody.ts";
import { memoryStorage } from "../storage/storage.ts";
import { RunChecker } from "./runs.ts";

const url = "https://app.example/order";
const account = "acme";
const features = { lazyFetch: false, initialBody: true, detect: false, captured: true };

/** Runs commands on a store in memory, under a checker of runs. */
class CheckedRuns {
  readonly checker = new RunChecker();
  readonly broken: string[] = [];
  /** The calls to the endpoint, in order. */
  readonly calls: RunPart[] = [];
  readonly #storage = memoryStorage();
  readonly #node = this.#storage.open({
    ...{ node: "nod_a", now: () => noon, random: () => 0.5 },
    newId: createIdGenerator(() => 0.5),
  });

  async run<N extends CommandName>(name: N, input: CommandInput<N>): Promise<CommandResult<N>> {
    const calls = [{ name, input }];
    const done = await this.#node.runBatch(calls, ampleCapacity);
    const result = { ...done, deliveries: done.deliveries.map(withSentBody) };
    this.checker.check(
      { node: "nod_a", calls, result, capacity: ampleCapacity, changes: await this.#storage.changes() },
      {
        assertHolds: (holds, promise) => void (holds || this.broken.push(promise)),
        tables: this.#storage.tables,
        now: noon,
        retention: { log: hour, deadLetters: hour, audit: hour },
        cover: () => undefined,
      },
    );
    this.calls.push(...result.deliveries.flatMap(({ message }) => message.run ?? []));
    const [reply] = result.replies;
    if (reply && "answer" in reply) return reply.answer as CommandResult<N>;
    throw new Error(JSON.stringify(reply));
  }

  async post(post: RunPost): Promise<string> {
    const body = bytes("head" in post ? JSON.stringify(post.head) : "");
    const inputs = [makeInput({ url, retries: 0, body, post })];
    const [result] = await this.run("publish", { account, inputs });
    if (result && "messageId" in result) return result.messageId;
    throw new Error(JSON.stringify(result));
  }

  /**
   * Starts a run, posts plans and results, such as `p2 p3 r3`, lets a plan without a result fail, and resumes
   * the run. Returns the calls of the resumed run.
   */
  async resume(runId: string, posts: string): Promise<RunPart[]> {
    await this.run("createAccount", {
      ...{ id: account, name: account, password: "", token: "token", tokenHash: "hash" },
      signingKeys: { current: "sig_1", next: "sig_2" },
    });
    await this.post({ kind: "start", runId, url, features, origin: "sdk", invoker: null });
    const messages = new Map<string, string>();
    const keys = posts.split(" ");
    for (const key of keys) {
      const number = Number(key.slice(1));
      const step = { stepName: "s", stepType: "Run", concurrent: number === 1 ? 1 : 2 };
      const head = key.startsWith("p")
        ? { ...step, stepId: 0, targetStep: number }
        : { ...step, stepId: number };
      messages.set(key, await this.post({ kind: "step", runId, head }));
    }
    const failed = keys.find((key) => key.startsWith("p") && !messages.has(key.replace("p", "r"))) ?? "";
    const messageId = messages.get(failed) ?? "";
    await this.run("settle", makeOutcome({ messageId, host: "app.example" }));
    const [deadLetter] = this.#storage.tables.deadLetters.values();
    const before = this.calls.length;
    await this.run("resumeRun", {
      ...{ account, dlqId: deadLetter?.id ?? "", from: "failure", overrides: {} },
      logRetention: hour,
    });
    return this.calls.slice(before);
  }
}

describe("a resumed run", () => {
  test.each([
    ["may run a step that has no result", "once-1", "r1 p2 p3 r3", "p2", 2, false],
    ["must not run a step whose result its call carries", "run-1", "r1 p2 p3 r3", "p2", 1, true],
    ["may run a step again for a plan of another run with its id", "run-1", "p5 r1", "p5", 1, false],
    ["must not run a step again if no other run has its id", "once-1", "p5 r1", "p5", 1, true],
    ["must not run a step again for its initial payload", "run-1", "p5 r1", "i", 1, true],
    ["must not run a step again for a plan that has a result", "run-1", "p5 p6 r5 r1", "p5", 1, true],
  ])("%s", async (...[, runId, posts, stepKey, stepId, isFault]) => {
    const runs = new CheckedRuns();
    const [call] = await runs.resume(runId, posts);
    if (!call) throw new Error("the resumed run calls nothing");
    expect(runs.broken).toEqual([]);
    runs.checker.noteStepRan({ run: call.run, stepKey }, stepId);
    const promise = `a resumed run repeats no step with a result: ${stepId} of ${call.run}`;
    expect(runs.broken).toEqual(isFault ? [promise] : []);
  });

  test("is called with the plan of another run, without the result that follows it", async () => {
    const calls = await new CheckedRuns().resume("run-1", "p5 r1");
    expect(calls).toMatchObject([{ stepKey: "p5", position: 1 }]);
  });
});
