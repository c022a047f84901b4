import type { Letter, Millis, RunOrigin, RunPost, StepHead } from "../../src/core/model/message.ts";
import type { RunFilter } from "../../src/core/search/runFilter.ts";
import type { WaitPost } from "../../src/core/workflows/wait.ts";
import type { Given } from "./randomCommands.ts";
import { bytes, callbackTo, letterTo } from "./world.ts";

const runIds = ["wfr_1", "wfr_2", "w-3"];
/** On hosts of their own: those of other messages have long lines. */
const urls = ["https://flow.example/f", "https://work.example:8443/f?x=1"];
const events = ["paid", "größe"];
export const sdkVersion = ["Upstash-Workflow-Sdk-Version", "1"] as const;

/** What people search runs by, as far as runs of this file have it. */
export const runFilters: readonly RunFilter[] = [
  {},
  { runIds: ["wfr_1", "wfr_2"] },
  { urls: [urls[0] ?? ""], states: ["RUN_FAILED", "RUN_SUCCESS"] },
  { urlStarts: ["https://work."] },
  { labels: ["l"], states: ["RUN_STARTED"] },
  { flowControlKeys: ["k1"], callerIps: ["192.0.2.1"] },
];

/** Where chance, and what is known of earlier answers, come from. */
type Luck = {
  random(): number;
  dlqIds(): readonly string[];
  toRepeat(): readonly string[];
  waiterIds(): readonly string[];
  account(): string;
};

/** Commands of workflow runs by chance. Few names, few steps: so that runs end, begin again, and are posted to twice. */
export class RandomRuns {
  readonly #luck: Luck;
  #turn = 0;

  constructor(luck: Luck) {
    this.#luck = luck;
  }

  one(now: Millis): Given {
    const account = this.#luck.account();
    const [toRepeat] = this.#luck.toRepeat();
    if (toRepeat !== undefined && this.#random() < 0.3) return { name: "repeatFailureCallback", input: { account, dlqId: toRepeat } };
    const [runId, event] = [this.#of(runIds), this.#of(events)];
    const kind = this.#below(100);
    if (kind < 60) return { name: "publish", input: { account, letters: this.#letters(now) } };
    if (kind < 72) return { name: "wait", input: { account, runId, waiter: this.#waiter(event) } };
    const notifies: Given[] = [
      { name: "notify", input: { account, event, body: this.#body(), runId, kind: this.#of(["event", "event", "webhook"] as const) } },
      { name: "notify", input: { account, event, body: this.#body(), waiterIds: this.#luck.waiterIds() } },
    ];
    if (kind < 82) return this.#of(notifies);
    const dlqId = this.#of([...this.#luck.dlqIds().slice(-2), this.#luck.dlqIds().at(-1) ?? "dlq_none"]);
    const given: Given[] = [
      { name: "resumeRun", input: this.#resume(account, dlqId) },
      { name: "finishRun", input: { account, runId, body: this.#body() } },
      { name: "repeatFailureCallback", input: { account, dlqId } },
      { name: "cancelRuns", input: { account, runIds: [runId, this.#of(runIds)] } },
      { name: "resumeRun", input: this.#resume(account, dlqId) },
    ];
    return given[this.#turn++ % given.length] ?? this.#of(given);
  }

  #resume(account: string, dlqId: string): Extract<Given, { name: "resumeRun" }>["input"] {
    const overrides = [{}, { runId: this.#of(runIds), retries: 1 }, { delay: 5_000, flowControl: { key: "k2" } }, { retries: 1e9 }];
    return {
      account,
      dlqId,
      from: this.#of(["failure", "failure", "beginning"] as const),
      overrides: this.#of(overrides),
      logRetention: 9,
    };
  }

  #letters(now: Millis): Letter[] {
    const one = (): Letter => this.#of([() => this.#start(now), () => this.#step(now), () => this.#call()])();
    return this.#random() < 0.7 ? [one()] : [one(), one(), one()];
  }

  #start(now: Millis): Letter {
    const [runId, url] = [this.#of(runIds), this.#of(urls)];
    const on = (): boolean => this.#random() < 0.8;
    const features = { lazyFetch: on(), initialBody: on(), detect: this.#random() < 0.5, captured: on() };
    const origin: RunOrigin = this.#of(["sdk", "sdk", "sdk", "rest", "again"]);
    const step = { ...this.#head(), stepId: 1 + this.#below(4), stepType: "Invoke" };
    const invoker =
      this.#random() < 0.25 ? { runId: this.#of(runIds), createdAt: now, url: this.#of(urls), headers: [sdkVersion], step } : null;
    return this.#letter(
      { kind: "start", runId, url, features, origin, invoker },
      {
        ...{
          url,
          brand: this.#of(["svc", "upstash"] as const),
          headers: [sdkVersion, ["X-Mine", "y"]],
          delay: this.#of([null, null, 4_000]),
        },
        ...{ labels: this.#of([[], ["l"]]), failureCallback: this.#of([null, { ...callbackTo(this.#of(urls)), retries: 0 }]) },
      },
    );
  }

  #step(now: Millis): Letter {
    const head = this.#random() < 0.05 ? null : this.#head();
    const when = this.#of([{ delay: null }, { delay: null }, { delay: 3_000 }, { notBefore: now + 700 }]);
    return this.#letter({ kind: "step", runId: this.#of(runIds), head }, { url: this.#of(urls), ...when });
  }

  #call(): Letter {
    const callback = { ...callbackTo(this.#of(urls)), headers: [["X-Step", "1"]] as const };
    const url = "https://third.example/api";
    return this.#letter({ kind: "call", runId: this.#of(runIds), head: this.#head() }, { url, callback, retries: this.#of([0, 1]) });
  }

  #letter(post: RunPost, over: Partial<Letter>): Letter {
    const limits = { parallelism: this.#of([null, 1, 2]), rate: null, period: null };
    const flowControl = this.#random() < 0.2 ? { key: "k1", ...limits } : null;
    return letterTo({ retries: this.#of([0, 0, 1, null]), body: this.#body(), flowControl, ...over, post });
  }

  #head(): StepHead {
    const number = 1 + this.#below(4);
    const named = { stepName: "s", stepType: "Run", concurrent: 1 };
    return this.#random() < 0.7 ? { ...named, stepId: number } : { ...named, concurrent: 2, stepId: 0, targetStep: number };
  }

  #waiter(event: string): WaitPost {
    const [url, timeoutUrl] = [this.#of(urls), this.#of(urls)];
    const step = { stepId: 1 + this.#below(4), stepName: "w", stepType: "Wait", concurrent: 1 };
    return {
      ...{ event, url, headers: [sdkVersion], given: [], timeout: "3s", timeoutUrl, timeoutHeaders: [], timeoutGiven: [sdkVersion], step },
      ...{ kind: this.#of(["event", "event", "webhook"] as const), wait: this.#of([900, 3_000, 100_000, 1e12]) },
    };
  }

  #body(): Uint8Array {
    return bytes("b\0".repeat(this.#below(20)));
  }

  #random(): number {
    return this.#luck.random();
  }

  #below(count: number): number {
    return Math.floor(this.#luck.random() * count);
  }

  #of<T>(list: readonly T[]): T {
    const one = list[this.#below(list.length)];
    if (one === undefined) throw new Error("nothing to choose from");
    return one;
  }
}
