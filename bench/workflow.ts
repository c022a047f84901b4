/**
 * A minimal workflow endpoint that also triggers runs, in its own process. It uses no client library, so that
 * the cost of one is not measured: each call looks at the last step that it receives, and posts the next one.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Pool } from "undici";
import { microseconds } from "./clock.ts";
import { type Spread, spread } from "./figures.ts";
import { serveDriver } from "./benchProcess.ts";
import { StepGaps, stepResult } from "./stepTurn.ts";

/** One turn of workflow runs. */
export type WorkflowRun = {
  port: number;
  token: string;
  /** Identifies the runs of this turn. */
  round: number;
  runs: number;
  steps: number;
  /** Runs in progress at once. Each is triggered when another has ended. */
  atOnce: number;
  /** Runs triggered per second on a fixed schedule. Null: see `atOnce`. */
  rate: number | null;
  /** Triggers per request. */
  batch: number;
  /**
   * The first step of each run sleeps for this time, such as `1d`. Null: none sleeps, and runs continue to
   * their end.
   */
  sleep: string | null;
};

/** The figures of a turn. */
export type WorkflowReport = {
  ended: number;
  /** Steps posted by runs that ended or sleep. */
  steps: number;
  /** In microseconds. */
  firstAt: number;
  lastAt: number;
  /** From the trigger to the end of the run. */
  latency: Spread;
  /** From the end of a step to the start of the next step of the same run. */
  between: Spread;
  /** Share of one core used by the process that starts the runs. */
  cpu: number;
  /** Share of one core used by the process that executes the steps, if it is another process. */
  endpointCpu: number | null;
};

/** The requests that the endpoint handles. */
export type WorkflowAnswers = typeof answers;

const answered = {
  "Upstash-Workflow-Sdk-Version": "1",
  "Upstash-Workflow-Sdk": "v1.0.0",
  "Content-Type": "application/json",
};
const features = "LazyFetch,InitialBody,WF_DetectTrigger,WF_TriggerOnConfig";

/** The runs of one turn. */
class RunTurn {
  readonly of: WorkflowRun;
  readonly done = Promise.withResolvers<void>();
  readonly #server: Pool;
  readonly #url: string;
  readonly #startedAt: Float64Array;
  readonly #latencies: Float64Array;
  /** When the last step of each run ended. */
  readonly #stepEndedAt: Float64Array;
  readonly #gaps: StepGaps;
  readonly #firstAt = microseconds();
  readonly #cpuAtStart = process.cpuUsage();
  #lastAt = 0;
  #triggered = 0;
  #over = 0;
  #steps = 0;

  constructor(of: WorkflowRun, url: string) {
    this.of = of;
    this.#url = url;
    this.#server = new Pool(`http://127.0.0.1:${of.port}`, { connections: 128, pipelining: 1 });
    this.#startedAt = new Float64Array(of.runs);
    this.#latencies = new Float64Array(of.runs);
    this.#stepEndedAt = new Float64Array(of.runs);
    this.#gaps = new StepGaps(of.runs * of.steps);
  }

  begin(): void {
    const { rate, runs, atOnce, batch } = this.of;
    if (rate === null)
      for (let started = 0; started < Math.min(runs, atOnce); started += batch) this.#trigger();
    else for (let run = 0; run < runs; run++) setTimeout(() => this.#trigger(), (run * 1e3) / rate);
  }

  async called(runId: string, body: string): Promise<void> {
    const [round, number] = runId.split("-").slice(1).map(Number);
    if (round !== this.of.round || number === undefined) return;
    const step = parseLastStep(body) + 1;
    const { sleep, steps } = this.of;
    if (step > steps) return this.#finish(runId, number);
    if (step > 1) this.#gaps.add(this.#stepEndedAt[number] ?? 0);
    this.#stepEndedAt[number] = microseconds();
    await this.#post(
      step === 1 && sleep !== null
        ? sleepItem(this.#url, { runId, sleep })
        : stepItem(this.#url, { runId, step }),
    );
    this.#steps++;
    if (sleep !== null) this.#ended(number);
  }

  report(): WorkflowReport {
    const { user, system } = process.cpuUsage(this.#cpuAtStart);
    const cpu = (user + system) / (microseconds() - this.#firstAt);
    return {
      ended: this.#over,
      steps: this.#steps,
      firstAt: this.#firstAt,
      lastAt: this.#lastAt,
      latency: spread(this.#latencies, this.#over),
      between: this.#gaps.report(),
      cpu,
      endpointCpu: null,
    };
  }

  close(): Promise<void> {
    return this.#server.close();
  }

  #trigger(): void {
    const first = this.#triggered;
    const count = Math.min(this.of.batch, this.of.runs - first);
    this.#triggered += count;
    const items = Array.from({ length: count }, (_, index) => {
      this.#startedAt[first + index] = microseconds();
      return startItem(this.#url, `bench-${this.of.round}-${first + index}`);
    });
    if (count > 0)
      void this.#ask("POST", "/v2/batch", JSON.stringify(items)).catch((error: unknown) =>
        this.done.reject(error),
      );
  }

  #post(item: object): Promise<void> {
    return this.#ask("POST", "/v2/batch", JSON.stringify([item]));
  }

  async #finish(runId: string, number: number): Promise<void> {
    await this.#ask("DELETE", `/v2/workflows/runs/${runId}?cancel=false`, '"done"');
    this.#ended(number);
  }

  #ended(number: number): void {
    this.#lastAt = microseconds();
    this.#latencies[this.#over++] = this.#lastAt - (this.#startedAt[number] ?? 0);
    if (this.#over === this.of.runs) this.done.resolve();
    else if (this.of.rate === null && this.#over % this.of.batch === 0) this.#trigger();
  }

  async #ask(method: "POST" | "DELETE", path: string, body: string): Promise<void> {
    const headers = { authorization: `Bearer ${this.of.token}`, "content-type": "application/json" };
    const response = await this.#server.request({ method, path, headers, body });
    const text = await response.body.text();
    if (response.statusCode >= 300 || text.includes('"error"'))
      throw new Error(
        `The server responded with ${response.statusCode} to ${method} ${path}: ${text.slice(0, 300)}`,
      );
  }
}

/** Returns the number of the last step in a call, or 0 for the initial payload. */
function parseLastStep(body: string): number {
  const history: unknown = JSON.parse(body);
  const last: unknown = Array.isArray(history) && history.length > 1 ? history.at(-1) : null;
  if (typeof last !== "object" || last === null || !("body" in last)) return 0;
  const step: unknown = JSON.parse(Buffer.from(String(last.body), "base64").toString());
  return typeof step === "object" && step !== null && "stepId" in step ? Number(step.stepId) : 0;
}

const postHeaders = (url: string, runId: string, init: boolean): Record<string, string> => ({
  "upstash-workflow-init": String(init),
  "upstash-workflow-runid": runId,
  "upstash-workflow-url": url,
  "upstash-feature-set": features,
  "upstash-workflow-sdk-version": "1",
  "upstash-forward-upstash-workflow-sdk-version": "1",
  "content-type": "application/json",
  "upstash-method": "POST",
});

const startItem = (url: string, runId: string): object => ({
  destination: url,
  headers: postHeaders(url, runId, true),
  body: '{"order":1}',
});

const stepItem = (url: string, { runId, step }: { runId: string; step: number }): object => ({
  destination: url,
  headers: postHeaders(url, runId, false),
  body: JSON.stringify({
    stepId: step,
    stepName: `step ${step}`,
    stepType: "Run",
    out: JSON.stringify(stepResult),
    concurrent: 1,
  }),
});

const sleepItem = (url: string, { runId, sleep }: { runId: string; sleep: string }): object => ({
  destination: url,
  headers: { ...postHeaders(url, runId, false), "upstash-delay": sleep },
  body: JSON.stringify({ stepId: 1, stepName: "nap", stepType: "SleepFor", sleepFor: sleep, concurrent: 1 }),
});

let turn: RunTurn | null = null;
let url = "";

const answers = {
  listen: async (): Promise<{ url: string }> => {
    const server = createServer((request, response) => take(request, response));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", 4096, resolve));
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/workflow`;
    return { url };
  },
  run: async (of: WorkflowRun): Promise<WorkflowReport> => {
    const current = new RunTurn(of, url);
    turn = current;
    current.begin();
    try {
      await current.done.promise;
      return current.report();
    } finally {
      turn = null;
      await current.close();
    }
  },
};

/** Responds when its step is stored, as a real endpoint does. */
function take(request: IncomingMessage, response: ServerResponse): void {
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    const current = turn;
    const end = (status: number): void => void response.writeHead(status, answered).end("{}");
    if (!current) return end(200);
    current.called(String(request.headers["upstash-workflow-runid"]), Buffer.concat(chunks).toString()).then(
      () => end(200),
      (error: unknown) => {
        end(500);
        current.done.reject(error);
      },
    );
  });
}

serveDriver(answers);
