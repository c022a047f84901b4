import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { IncomingMessage } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { onTestFinished } from "vitest";

type Ask = (
  method: "POST" | "DELETE",
  path: string,
  more: { headers?: Record<string, string>; body?: string },
) => Promise<{ status: number; text: string } | null>;

type Step = { stepId: number; targetStep?: number; out?: string; waitTimeout?: boolean };
type Delivery = { runId: string; steps: readonly Step[] };

/**
 * Starts the endpoint of a workflow with six steps, which speaks the protocol without a client library: a
 * step, a sleep, two parallel steps, a wait, and a step. Each execution of a step returns a different value,
 * so that repeated or swapped results are detected.
 */
export async function startEndpoint(ask: Ask) {
  const book = createRunRecords();
  let calls = 0;
  const server = createServer(async (incoming, response) => {
    calls++;
    const delivery = await parseDelivery(incoming);
    book.check(delivery);
    const done = await continueRun(delivery, { ask, url, book });
    // Without a response the effect is unknown, so the call must be repeated.
    response.writeHead(done ? 200 : 500, { "svc-workflow-sdk-version": "1" }).end("{}");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void (server.closeAllConnections(), server.close()));
  const address = server.address();
  const url = `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}/`;
  return {
    calls: () => calls,
    broken: book.broken,
    resultOf: (runId: string) => book.results(runId),
    /**
     * Starts runs with these ids. Each request is repeated until it gets a response; the run may exist by
     * then.
     */
    begin: async (ids: readonly string[]): Promise<void> => {
      const items = ids.map((id) => ({
        destination: url,
        headers: { ...makeHeaders(id, url), ...settings, "svc-workflow-init": "true" },
        body: id,
      }));
      await retryUntilAnswered(() => ask("POST", "batch", { headers: json, body: JSON.stringify(items) }));
    },
    /** Resolves when this many runs have reached their last call. */
    finished: async (count: number): Promise<void> => {
      while (book.finished.size < count) await pause(20);
    },
  };
}

const json = { "content-type": "application/json" };
const settings = { "svc-retries": "1000", "svc-retry-delay": "50" };

const makeHeaders = (runId: string, url: string): Record<string, string> => ({
  ...json,
  "svc-workflow-init": "false",
  "svc-workflow-runid": runId,
  "svc-workflow-url": url,
  "svc-workflow-sdk-version": "1",
  "svc-feature-set": "LazyFetch,InitialBody,WF_DetectTrigger,WF_TriggerOnConfig",
  "svc-forward-svc-workflow-sdk-version": "1",
});

async function retryUntilAnswered(tell: () => ReturnType<Ask>): Promise<{ status: number; text: string }> {
  for (;;) {
    const answer = await tell();
    if (answer && answer.status < 500) return answer;
    await pause(20);
  }
}

async function parseDelivery(incoming: IncomingMessage): Promise<Delivery> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  const [, ...entries] = JSON.parse(Buffer.concat(chunks).toString()) as { body: string }[];
  const steps = entries.map(({ body }) => JSON.parse(atob(body)) as Step);
  return { runId: String(incoming.headers["svc-workflow-runid"]), steps };
}

type RunRecords = ReturnType<typeof createRunRecords>;

/** Records what the endpoint has seen of each run, and contradictions. */
function createRunRecords() {
  const seen = new Map<string, string>();
  const broken: string[] = [];
  const finished = new Map<string, readonly (string | null)[]>();
  return {
    broken,
    finished,
    /** Runs that were notified of their event. */
    notified: new Set<string>(),
    results: (runId: string): readonly (string | null)[] => finished.get(runId) ?? [],
    check: ({ runId, steps }: Delivery): void => {
      const names = steps.map(({ stepId, targetStep }) => `${stepId}/${targetStep ?? ""}`);
      if (new Set(names).size < names.length) broken.push(`${runId}: ${names.join(" ")}`);
      for (const { stepId, out = "none" } of steps.filter((step) => step.stepId > 0)) {
        const before = seen.get(`${runId} ${stepId}`) ?? out;
        seen.set(`${runId} ${stepId}`, before);
        if (before !== out) broken.push(`${runId}: step ${stepId} was ${before} and is ${out}`);
      }
    },
  };
}

type EndpointContext = { ask: Ask; url: string; book: RunRecords };

/** Does the next step of a run. Returns false if the server did not respond. */
async function continueRun(
  { runId, steps }: Delivery,
  { ask, url, book }: EndpointContext,
): Promise<boolean> {
  const has = (stepId: number): boolean => steps.some((step) => step.stepId === stepId);
  const step = (stepId: number, more: object = {}) => ({
    stepId,
    stepName: `step ${stepId}`,
    stepType: "Run",
    concurrent: 1,
    ...more,
  });
  const post = async (bodies: readonly object[], headers: Record<string, string> = {}): Promise<boolean> => {
    const items = bodies.map((body) => ({
      destination: url,
      headers: { ...makeHeaders(runId, url), ...headers },
      body: JSON.stringify(body),
    }));
    return isAccepted(await ask("POST", "batch", { headers: json, body: JSON.stringify(items) }));
  };
  const planned = steps.at(-1)?.targetStep;
  if (planned !== undefined) return post([step(planned, { concurrent: 2, out: randomUUID() })]);
  if (!has(1)) return post([step(1, { out: randomUUID() })]);
  if (isNotified(runId) && !book.notified.has(runId)) void notifyRun(runId, { ask, book });
  if (!has(2)) return post([step(2, { stepType: "SleepFor", sleepFor: 1 })], { "svc-delay": "1s" });
  if (!has(0))
    return post(
      [3, 4].map((targetStep) => step(0, { stepName: `step ${targetStep}`, targetStep, concurrent: 2 })),
    );
  // The other parallel step is missing; the run continues when it is there.
  if (!has(3) || !has(4)) return true;
  if (!has(5)) return wait(runId, { ask, url });
  if (!has(6)) return post([step(6, { out: randomUUID() })]);
  return finish({ runId, steps }, { ask, book });
}

const isAccepted = (answer: { status: number } | null): boolean => answer !== null && answer.status < 300;

/** Reports whether a run waits for an event. The others wait for their timeout. */
const isNotified = (runId: string): boolean => /[02468ace]$/.test(runId);

async function wait(runId: string, { ask, url }: Pick<EndpointContext, "ask" | "url">): Promise<boolean> {
  const step = { stepId: 5, stepName: "step 5", stepType: "Wait", concurrent: 1 };
  const timeoutHeaders = Object.fromEntries(
    Object.entries(makeHeaders(runId, url)).map(([name, value]) => [name, [value]]),
  );
  const waiter = { url, timeout: isNotified(runId) ? "1h" : "1s", timeoutUrl: url, timeoutHeaders, step };
  return isAccepted(
    await ask("POST", "wait/go", { headers: makeHeaders(runId, url), body: JSON.stringify(waiter) }),
  );
}

/** Sends an event to a run, which may not wait for it yet. */
async function notifyRun(runId: string, { ask, book }: Pick<EndpointContext, "ask" | "book">): Promise<void> {
  book.notified.add(runId);
  await pause(Math.random() * 2000);
  const { status, text } = await retryUntilAnswered(() =>
    ask("POST", `notify/${runId}/go`, { body: "event" }),
  );
  // The first request may have succeeded without a response, and the run may have ended since.
  if (status !== 200 && status !== 404) book.broken.push(`${runId}: notify responded with ${status} ${text}`);
}

async function finish(
  { runId, steps }: Delivery,
  { ask, book }: Pick<EndpointContext, "ask" | "book">,
): Promise<boolean> {
  const results = [1, 2, 3, 4, 5, 6].map((stepId) => steps.find((one) => one.stepId === stepId)?.out ?? null);
  const waited = steps.find(({ stepId }) => stepId === 5);
  if (waited?.waitTimeout === isNotified(runId)) book.broken.push(`${runId}: ${JSON.stringify(waited)}`);
  book.finished.set(runId, results);
  return isAccepted(
    await ask("DELETE", `workflows/runs/${runId}?cancel=false`, { body: JSON.stringify(results) }),
  );
}
