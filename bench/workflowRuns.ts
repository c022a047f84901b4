/** The runs of one turn of a workflow endpoint: what starts them, counts them and measures them. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Pool } from "undici";
import { microseconds } from "./clock.ts";
import { type Spread, spread } from "./figures.ts";
import { startCpuClock } from "./processFigures.ts";
import { StepGaps } from "./stepTurn.ts";

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
  /** Calls of the endpoint ask to run on after each step. Absent: each step has its own call. */
  runsOn?: boolean;
  /** The CPU time of the process `pid` is read after each `steps` steps. Absent: it is not read. */
  windows?: { pid: number; steps: number };
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
  /** CPU time of the server in microseconds per step, in each window. */
  windows: number[];
};

/** The runs of one turn. */
export class RunTurn {
  readonly of: WorkflowRun;
  readonly url: string;
  readonly done = Promise.withResolvers<void>();
  readonly #server: Pool;
  readonly #startedAt: Float64Array;
  readonly #latencies: Float64Array;
  /** When the last step of each run ended. */
  readonly #stepEndedAt: Float64Array;
  readonly #gaps: StepGaps;
  readonly #firstAt = microseconds();
  readonly #cpuAtStart = process.cpuUsage();
  readonly #windows: number[] = [];
  #readWindow: () => number;
  #lastAt = 0;
  #triggered = 0;
  #over = 0;
  #steps = 0;

  constructor(of: WorkflowRun, url: string) {
    this.of = of;
    this.url = url;
    this.#server = new Pool(`http://127.0.0.1:${of.port}`, { connections: 128, pipelining: 1 });
    this.#startedAt = new Float64Array(of.runs);
    this.#latencies = new Float64Array(of.runs);
    this.#stepEndedAt = new Float64Array(of.runs);
    this.#gaps = new StepGaps(of.runs * of.steps);
    this.#readWindow = of.windows ? startCpuClock(of.windows.pid) : () => 0;
  }

  begin(): void {
    const { rate, runs, atOnce, batch } = this.of;
    if (rate === null)
      for (let started = 0; started < Math.min(runs, atOnce); started += batch) this.#trigger();
    else for (let run = 0; run < runs; run++) setTimeout(() => this.#trigger(), (run * 1e3) / rate);
  }

  /** Returns the number of a run in this turn, or undefined if the run belongs to another turn. */
  find(runId: string): number | undefined {
    const [round, number] = runId.split("-").slice(1).map(Number);
    return round === this.of.round ? number : undefined;
  }

  /** Called when the code of a step is executed. Steps begin with 1. */
  stepBegins(number: number, step: number): void {
    if (step > 1) this.#gaps.add(this.#stepEndedAt[number] ?? 0);
    this.#stepEndedAt[number] = microseconds();
  }

  /** Called when the server has stored a step. */
  stepEnded(): void {
    this.#steps++;
    const { windows } = this.of;
    if (windows === undefined || this.#steps % windows.steps !== 0) return;
    this.#windows.push(this.#readWindow() / windows.steps);
    this.#readWindow = startCpuClock(windows.pid);
  }

  runEnded(number: number): void {
    this.#lastAt = microseconds();
    this.#latencies[this.#over++] = this.#lastAt - (this.#startedAt[number] ?? 0);
    if (this.#over === this.of.runs) this.done.resolve();
    else if (this.of.rate === null && this.#over % this.of.batch === 0) this.#trigger();
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
      windows: this.#windows,
    };
  }

  close(): Promise<void> {
    return this.#server.close();
  }

  /** Sends a request to the server, and returns the body of the response. Throws if it is refused. */
  async ask(method: "POST" | "DELETE", path: string, body: string): Promise<string> {
    const headers = { authorization: `Bearer ${this.of.token}`, "content-type": "application/json" };
    const response = await this.#server.request({ method, path, headers, body });
    const text = await response.body.text();
    if (response.statusCode >= 300 || text.includes('"error"'))
      throw new Error(
        `The server responded with ${response.statusCode} to ${method} ${path}: ${text.slice(0, 300)}`,
      );
    return text;
  }

  #trigger(): void {
    const first = this.#triggered;
    const count = Math.min(this.of.batch, this.of.runs - first);
    this.#triggered += count;
    const items = Array.from({ length: count }, (_, index) => {
      this.#startedAt[first + index] = microseconds();
      return startItem(this.url, `bench-${this.of.round}-${first + index}`);
    });
    if (count > 0)
      void this.ask("POST", "/v2/batch", JSON.stringify(items)).catch((error: unknown) =>
        this.done.reject(error),
      );
  }
}

const features = "LazyFetch,InitialBody,WF_DetectTrigger,WF_TriggerOnConfig";

/** Returns the headers with which an endpoint posts a step of a run, or (`init`) with which a run starts. */
export const postHeaders = (url: string, runId: string, init: boolean): Record<string, string> => ({
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

/** The headers of the response of a workflow endpoint. */
export const answered = {
  "Upstash-Workflow-Sdk-Version": "1",
  "Upstash-Workflow-Sdk": "v1.0.0",
  "Content-Type": "application/json",
};

/** A call of an endpoint, and the turn that it belongs to. */
export type EndpointCall = {
  turn: RunTurn;
  number: number;
  runId: string;
  request: IncomingMessage;
  body: string;
};

/** Handles a call and responds to it. */
type Endpoint = (call: EndpointCall, response: ServerResponse) => Promise<void>;

/** Returns the requests that a process with this endpoint handles. */
export function serveEndpoint(endpoint: Endpoint) {
  let turn: RunTurn | null = null;
  let url = "";
  const take = (request: IncomingMessage, response: ServerResponse): void => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const current = turn;
      const runId = String(request.headers["upstash-workflow-runid"]);
      const number = current?.find(runId);
      if (!current || number === undefined) return void response.writeHead(200, answered).end("{}");
      const body = Buffer.concat(chunks).toString();
      endpoint({ turn: current, number, runId, request, body }, response).catch((error: unknown) => {
        if (!response.headersSent) response.writeHead(500).end("{}");
        current.done.reject(error);
      });
    });
  };
  return {
    listen: async (): Promise<{ url: string }> => {
      const server = createServer(take);
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
}

/** The requests that an endpoint handles. */
export type WorkflowAnswers = ReturnType<typeof serveEndpoint>;
