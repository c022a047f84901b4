import { alarm, type Clock } from "../../../engine/clock/clock.ts";
import type { Millis } from "../../../engine/core/values/basics.ts";
import { minute, second } from "../../../engine/core/values/time.ts";
import { formatSpans, type TraceSpan, type SpanSource } from "./spans.ts";

/** Where spans are sent: the address of a collector, without `/v1/traces`, and its headers. */
export type OtlpTarget = { endpoint: string; headers: readonly (readonly [name: string, value: string])[] };

/** The spans that a collector has taken, and those that were lost. */
export type SpanCounts = { exported: number; dropped: number };

type SpanExporterOptions = {
  target: OtlpTarget;
  source: SpanSource;
  clock: Clock;
  warn(message: string): void;
};

/** The maximum number of spans that wait, of about 1 kB each. Later ones are dropped. */
export const maxWaitingSpans = 4096;
const spansPerRequest = 512;
/** How long spans are collected before a request sends them. */
const batchInterval: Millis = second;
const requestTimeout: Millis = 10 * second;
/** The maximum number of requests for the same spans. */
const maxTries = 4;
const longestPause: Millis = 30 * second;
/** The maximum time that the stop of a server waits for the last spans. */
const stopTime: Millis = 2 * second;
/** The maximum size of a response that is read, in bytes. */
const maxResponse = 64 * 1024;
const warnInterval: Millis = minute;
/** Only these are worth another try, as OTLP says. */
const temporaryStatuses: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** The result of a request. `rejected`: the number of spans that the collector did not take. */
type Sent = { rejected: number; problem: string | null } | { again: Millis | null; problem: string };

/**
 * Sends spans to a collector by OTLP/HTTP in JSON, one request at a time. It never delays its caller: a span
 * that arrives when this many wait is dropped and counted.
 */
export class SpanExporter {
  readonly counts: SpanCounts = { exported: 0, dropped: 0 };
  readonly #options: SpanExporterOptions;
  readonly #stopped = new AbortController();
  #waiting: TraceSpan[] = [];
  #wake = new AbortController();
  #loop: Promise<void> | null = null;
  #isStopping = false;
  #isCollecting = false;
  #warnedAt: Millis = Number.NEGATIVE_INFINITY;

  constructor(options: SpanExporterOptions) {
    this.#options = options;
  }

  /** Adds a span to those that wait. */
  add(span: TraceSpan): void {
    if (this.#isStopping || this.#waiting.length >= maxWaitingSpans) return void this.counts.dropped++;
    this.#waiting.push(span);
    this.#loop ??= this.#run();
    if (this.#isCollecting && this.#waiting.length >= spansPerRequest) this.#wake.abort();
  }

  /** Sends the spans that wait, for at most two seconds. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    this.#wake.abort();
    const cancel = alarm(stopTime, () => this.#stopped.abort());
    await this.#loop;
    cancel();
  }

  /** Sends until no span waits. */
  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      this.#isCollecting = true;
      if (this.#waiting.length < spansPerRequest) await this.#pause(batchInterval);
      this.#isCollecting = false;
      const spans = this.#waiting.splice(0, spansPerRequest);
      const { rejected, problem } = await this.#sendWithRetries(spans);
      this.counts.exported += spans.length - rejected;
      this.counts.dropped += rejected;
      if (problem !== null) this.#warn(`${problem}; ${rejected} spans were dropped`);
    }
    this.#loop = null;
  }

  async #sendWithRetries(spans: readonly TraceSpan[]): Promise<{ rejected: number; problem: string | null }> {
    const body = formatSpans(spans, this.#options.source);
    for (let tries = 1; ; tries++) {
      const sent = await this.#send(body, spans.length);
      if ("rejected" in sent) return sent;
      if (tries === maxTries || this.#isStopping) return { rejected: spans.length, problem: sent.problem };
      await this.#pause(Math.min(longestPause, sent.again ?? second * 2 ** (tries - 1)));
    }
  }

  /** Sleeps. Ends at once when the server stops. */
  async #pause(time: Millis): Promise<void> {
    if (this.#isStopping) return;
    const { clock } = this.#options;
    this.#wake = new AbortController();
    await clock.sleep(clock.now() + time, this.#wake.signal);
  }

  /** Makes one request. Never rejects. */
  async #send(body: string, count: number): Promise<Sent> {
    const { endpoint, headers } = this.#options.target;
    const timeout = new AbortController();
    const cancel = alarm(requestTimeout, () => timeout.abort());
    try {
      const response = await fetch(`${endpoint.replace(/\/+$/, "")}/v1/traces`, {
        method: "POST",
        headers: [...headers.map(([name, value]): [string, string] => [name, value]), ...ownHeaders],
        body,
        // A collector must not choose who receives the spans and the headers.
        redirect: "manual",
        signal: AbortSignal.any([timeout.signal, this.#stopped.signal]),
      });
      return await readResult(response, count);
    } catch {
      const problem = timeout.signal.aborted
        ? `the OTLP endpoint did not respond within ${requestTimeout / second} s`
        : "the OTLP endpoint cannot be reached";
      return this.#stopped.signal.aborted
        ? { rejected: count, problem: "the server stopped before the OTLP endpoint responded" }
        : { again: null, problem };
    } finally {
      cancel();
    }
  }

  /** Warns at most once a minute. */
  #warn(message: string): void {
    const now = this.#options.clock.now();
    if (Math.abs(now - this.#warnedAt) < warnInterval) return;
    this.#warnedAt = now;
    this.#options.warn(message);
  }
}

const ownHeaders: [string, string][] = [
  ["content-type", "application/json"],
  ["accept-encoding", "identity"],
];

async function readResult(response: Response, count: number): Promise<Sent> {
  const { status } = response;
  if (status === 200) {
    const rejected = readRejected(await readStart(response), count);
    return { rejected, problem: rejected === 0 ? null : "the OTLP endpoint did not take all spans" };
  }
  await response.body?.cancel();
  const problem = `the OTLP endpoint responded with status ${status}`;
  if (!temporaryStatuses.has(status)) return { rejected: count, problem };
  const wait = Number(response.headers.get("retry-after") ?? Number.NaN);
  return { again: wait > 0 ? wait * second : null, problem };
}

/** Returns a response as text, or an empty text if it is too long. */
async function readStart({ body }: Response): Promise<string> {
  if (body === null) return "";
  const parts: Uint8Array[] = [];
  let length = 0;
  for await (const part of body as unknown as AsyncIterable<Uint8Array>) {
    parts.push(part);
    if ((length += part.byteLength) > maxResponse) return "";
  }
  return Buffer.concat(parts).toString();
}

/** Returns how many of the spans the response refuses. A response that says nothing valid refuses none. */
function readRejected(text: string, count: number): number {
  try {
    const { partialSuccess } = JSON.parse(text) as { partialSuccess?: { rejectedSpans?: unknown } };
    const rejected = Math.floor(Number(partialSuccess?.rejectedSpans ?? 0));
    return rejected > 0 ? Math.min(rejected, count) : 0;
  } catch {
    return 0;
  }
}
