import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import type { Millis } from "../../../src/engine/core/values/basics.ts";
import type { RunOrigin, RunPost, StepHead } from "../../../src/engine/core/model/runPost.ts";
import type { RunFilter } from "../../../src/engine/core/search/runFilter.ts";
import type { WaitPost } from "../../../src/engine/core/commands/wait.ts";
import type { RandomCommand } from "./randomCommands.ts";
import { bytes, makeCallback, makeInput } from "./storeFixture.ts";

const runIds = ["wfr_1", "wfr_2", "w-3"];
/** Invoked runs have their own ids, because a run cannot be invoked with the id of an active run. */
const childIds = ["wfr_c1", "wfr_c2"];
const allIds = [...runIds, ...childIds];
/** Runs have separate hosts, because the waitlists of other hosts are long. */
const urls = ["https://flow.example/f", "https://work.example:8443/f?x=1"];
const events = ["paid", "größe"];
/** The header by which an endpoint shows that it uses the SDK of workflows. */
export const sdkVersion = ["Upstash-Workflow-Sdk-Version", "1"] as const;

/** Filters that match some of the runs of this file. */
export const runFilters: readonly RunFilter[] = [
  {},
  { runIds: ["wfr_1", "wfr_2"] },
  { urls: [urls[0] ?? ""], states: ["RUN_FAILED", "RUN_SUCCESS"] },
  { urlStarts: ["https://work."] },
  { labels: ["l"], states: ["RUN_STARTED"] },
  { flowControlKeys: ["k1"], callerIps: ["192.0.2.1"] },
];

/** Randomness, and what is known of earlier answers. */
type RandomContext = {
  random(): number;
  dlqIds(): readonly string[];
  toRepeat(): readonly string[];
  waiterIds(): readonly string[];
  account(): string;
};

/**
 * Makes random commands of workflow runs. There are few names and steps, so that runs end, start again, and
 * are posted to twice.
 */
export class RandomRuns {
  readonly #context: RandomContext;
  #turn = 0;

  constructor(context: RandomContext) {
    this.#context = context;
  }

  makeCommand(now: Millis): RandomCommand {
    const account = this.#context.account();
    const [toRepeat] = this.#context.toRepeat();
    if (toRepeat !== undefined && this.#random() < 0.3)
      return { name: "repeatFailureCallback", input: { account, dlqId: toRepeat } };
    const runId = this.#pickOne(runIds);
    const event = this.#pickOne(events);
    const kind = this.#integerBelow(100);
    if (kind < 60) return { name: "publish", input: { account, inputs: this.#makeInputs(now) } };
    if (kind < 72) return { name: "wait", input: { account, runId, waiter: this.#waiter(event) } };
    const notifies: RandomCommand[] = [
      {
        name: "notify",
        input: {
          account,
          event,
          body: this.#body(),
          runId,
          kind: this.#pickOne(["event", "event", "webhook"] as const),
        },
      },
      { name: "notify", input: { account, event, body: this.#body(), waiterIds: this.#context.waiterIds() } },
    ];
    if (kind < 82) return this.#pickOne(notifies);
    const dlqId = this.#pickOne([
      ...this.#context.dlqIds().slice(-2),
      this.#context.dlqIds().at(-1) ?? "dlq_none",
    ]);
    const given: RandomCommand[] = [
      { name: "resumeRun", input: this.#resume(account, dlqId) },
      { name: "finishRun", input: { account, runId, body: this.#body() } },
      { name: "finishRun", input: { account, runId: this.#pickOne(childIds), body: this.#body() } },
      { name: "repeatFailureCallback", input: { account, dlqId } },
      { name: "cancelRuns", input: { account, runIds: [runId, this.#pickOne(allIds)] } },
      { name: "resumeRun", input: this.#resume(account, dlqId) },
    ];
    return given[this.#turn++ % given.length] ?? this.#pickOne(given);
  }

  #resume(account: string, dlqId: string): Extract<RandomCommand, { name: "resumeRun" }>["input"] {
    const overrides = [
      {},
      { runId: this.#pickOne(runIds), retries: 1 },
      { delay: 5_000, flowControl: { key: "k2" } },
      { retries: 1e9 },
    ];
    return {
      account,
      dlqId,
      from: this.#pickOne(["failure", "failure", "beginning"] as const),
      overrides: this.#pickOne(overrides),
      logRetention: 9,
    };
  }

  #makeInputs(now: Millis): MessageInput[] {
    const one = (): MessageInput =>
      this.#pickOne([() => this.#start(now), () => this.#step(now), () => this.#call()])();
    return this.#random() < 0.7 ? [one()] : [one(), one(), one()];
  }

  #start(now: Millis): MessageInput {
    const isInvoked = this.#random() < 0.4;
    const runId = this.#pickOne(isInvoked ? allIds : runIds);
    const url = this.#pickOne(urls);
    const on = (): boolean => this.#random() < 0.8;
    const features = { lazyFetch: on(), initialBody: on(), detect: this.#random() < 0.5, captured: on() };
    const origin: RunOrigin = this.#pickOne(["sdk", "sdk", "sdk", "rest", "again"]);
    const step = { ...this.#head(), stepId: 1 + this.#integerBelow(4), stepType: "Invoke" };
    const invoker = isInvoked
      ? {
          runId: this.#pickOne(runIds),
          createdAt: now,
          url: this.#pickOne(urls),
          headers: [sdkVersion],
          step,
        }
      : null;
    return this.#makeInput(
      { kind: "start", runId, url, features, origin, invoker },
      {
        url,
        brand: this.#pickOne(["svc", "upstash"] as const),
        headers: [sdkVersion, ["X-Mine", "y"]],
        delay: this.#pickOne([null, null, 4_000]),
        labels: this.#pickOne([[], ["l"]]),
        failureCallback: this.#random() < 0.2 ? null : { ...makeCallback(this.#pickOne(urls)), retries: 0 },
      },
    );
  }

  #step(now: Millis): MessageInput {
    const head = this.#random() < 0.05 ? null : this.#head();
    const when = this.#pickOne([
      { delay: null },
      { delay: null },
      { delay: 3_000 },
      { notBefore: now + 700 },
    ]);
    return this.#makeInput(
      { kind: "step", runId: this.#pickOne(runIds), head },
      { url: this.#pickOne(urls), ...when },
    );
  }

  #call(): MessageInput {
    const callback = { ...makeCallback(this.#pickOne(urls)), headers: [["X-Step", "1"]] as const };
    const url = "https://third.example/api";
    return this.#makeInput(
      { kind: "call", runId: this.#pickOne(runIds), head: this.#head() },
      { url, callback, retries: this.#pickOne([0, 1]) },
    );
  }

  #makeInput(post: RunPost, overrides: Partial<MessageInput>): MessageInput {
    const limits = { parallelism: this.#pickOne([null, 1, 2]), rate: null, period: null };
    const flowControl = this.#random() < 0.2 ? { key: "k1", ...limits } : null;
    return makeInput({
      retries: this.#pickOne([0, 0, 1, null]),
      body: this.#body(),
      flowControl,
      ...overrides,
      post,
    });
  }

  #head(): StepHead {
    const number = 1 + this.#integerBelow(4);
    const named = { stepName: "s", stepType: "Run", concurrent: 1 };
    return this.#random() < 0.7
      ? { ...named, stepId: number }
      : { ...named, concurrent: 2, stepId: 0, targetStep: number };
  }

  #waiter(event: string): WaitPost {
    const url = this.#pickOne(urls);
    const timeoutUrl = this.#pickOne(urls);
    const step = { stepId: 1 + this.#integerBelow(4), stepName: "w", stepType: "Wait", concurrent: 1 };
    return {
      event,
      url,
      headers: [sdkVersion],
      given: [],
      timeout: "3s",
      timeoutUrl,
      timeoutHeaders: [],
      timeoutGiven: [sdkVersion],
      step,
      kind: this.#pickOne(["event", "event", "webhook"] as const),
      wait: this.#pickOne([900, 3_000, 100_000, 1e12]),
    };
  }

  #body(): Uint8Array {
    return bytes("b\0".repeat(this.#integerBelow(20)));
  }

  #random(): number {
    return this.#context.random();
  }

  #integerBelow(count: number): number {
    return Math.floor(this.#context.random() * count);
  }

  #pickOne<T>(list: readonly T[]): T {
    const one = list[this.#integerBelow(list.length)];
    if (one === undefined) throw new Error("nothing to choose from");
    return one;
  }
}
