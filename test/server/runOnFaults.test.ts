import { setTimeout as pause } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { freshDatabase } from "../postgres.ts";
import { startNodes } from "./nodes.ts";
import type { Arrived, Ask } from "./runEndpoint.ts";
import {
  createAsk,
  finishRun,
  postStep,
  startEndpoint,
  startRun,
  startServer,
  waitForSuccess,
} from "./runEndpoint.ts";
import { startWaypost, temporaryFolder } from "./waypost.ts";

// Real servers, and an endpoint that runs on in its calls while something fails.

/** The server to which an endpoint posts, and the URL of the endpoint. */
type Posting = { ask: Ask; url: string };

/** Posts a step in a call, and reports whether the endpoint may continue in it. */
async function mayRunOn(
  { ask, url }: Posting,
  { messageId, retried, runId }: Arrived,
  { stepId, call = "c1" }: { stepId: number; call?: string },
): Promise<boolean> {
  const runOn = `${messageId}.${retried}.${call}`;
  const { status, body } = await postStep(ask, { url, runId, stepId, runOn });
  expect(status).toBe(200);
  return (body as { runOn?: true }[])[0]?.runOn === true;
}

/** Executes steps up to the last one and ends the run, or stops when the server ends the call. */
async function runSteps({ ask, url }: Posting, arrived: Arrived, last: number): Promise<void> {
  for (let stepId = arrived.history.length; stepId <= last; stepId++)
    if (!(await mayRunOn({ ask, url }, arrived, { stepId }))) return;
  await finishRun(ask, arrived.runId);
}

const listLengths = (arrivals: readonly Arrived[]): string[] =>
  arrivals.map(({ history, retried }) => `${history.length} ${retried}`);

test("a connection that is lost repeats only the step in flight, even without retries", async () => {
  const { ask } = await startServer();
  const { arrivals, url } = await startEndpoint(async (arrived) => {
    if (arrived.retried !== "0") {
      await runSteps({ ask, url }, arrived, 3);
      return 200;
    }
    for (const stepId of [1, 2]) expect(await mayRunOn({ ask, url }, arrived, { stepId })).toBe(true);
    return false;
  });
  await startRun(ask, url);
  await waitForSuccess(ask);
  expect(listLengths(arrivals)).toEqual(["1 0", "3 1"]);
});

test("of two calls of one attempt, the first that posts runs on", async () => {
  const { ask } = await startServer();
  const { arrivals, url } = await startEndpoint(async (arrived) => {
    if (arrived.retried !== "0") await runSteps({ ask, url }, arrived, 3);
    else {
      expect(await mayRunOn({ ask, url }, arrived, { stepId: 1, call: "c1" })).toBe(true);
      // A proxy has sent the request twice. The other call stores nothing, and its response arrives.
      expect(await mayRunOn({ ask, url }, arrived, { stepId: 1, call: "c2" })).toBe(false);
    }
    return 200;
  });
  await startRun(ask, url);
  await waitForSuccess(ask);
  expect(listLengths(arrivals)).toEqual(["1 0", "2 1"]);
});

test("a late post of an old attempt is an ordinary step, and ends the new call", async () => {
  const { ask } = await startServer();
  const calls: Arrived[] = [];
  const { arrivals, url } = await startEndpoint(async (arrived) => {
    calls.push(arrived);
    const [old] = calls;
    if (!old) throw new Error("there is no call");
    if (calls.length === 1) {
      expect(await mayRunOn({ ask, url }, arrived, { stepId: 1 })).toBe(true);
      return false;
    }
    if (calls.length === 2) {
      expect(await mayRunOn({ ask, url }, old, { stepId: 2 })).toBe(false);
      expect(await mayRunOn({ ask, url }, arrived, { stepId: 2 })).toBe(false);
    } else await runSteps({ ask, url }, arrived, 3);
    return 200;
  });
  await startRun(ask, url);
  await waitForSuccess(ask);
  expect(listLengths(arrivals)).toEqual(["1 0", "2 1", "3 0"]);
});

test("a key that is paused during a step holds the next one until it is resumed", async () => {
  const { ask } = await startServer();
  const { arrivals, url } = await startEndpoint(async (arrived) => {
    if (arrived.history.length > 1) await runSteps({ ask, url }, arrived, 3);
    else {
      expect(await mayRunOn({ ask, url }, arrived, { stepId: 1 })).toBe(true);
      expect((await ask("POST", "flowControl/k/pause")).status).toBe(200);
      expect(await mayRunOn({ ask, url }, arrived, { stepId: 2 })).toBe(false);
    }
    return 200;
  });
  const key = { "Upstash-Flow-Control-Key": "k", "Upstash-Flow-Control-Value": "parallelism=1" };
  await startRun(ask, url, key);
  const countHeld = async (): Promise<unknown> =>
    ((await ask("GET", "flowControl/k")).body as { waitListSize: number }).waitListSize;
  await expect.poll(countHeld).toBe(1);
  expect(arrivals).toHaveLength(1);
  await ask("POST", "flowControl/k/resume");
  await waitForSuccess(ask);
  expect(listLengths(arrivals)).toEqual(["1 0", "3 0"]);
});

test("a server that stops ends a chain after its step, and no step is executed again", async () => {
  const data = temporaryFolder();
  const start = () => startWaypost(["dev", "--port", "0", "--data", data, "--grace", "20s"]);
  const first = await start();
  let ask = createAsk(first);
  const { arrivals, url } = await startEndpoint(async (arrived) => {
    if (arrived.history.length > 1) await runSteps({ ask, url }, arrived, 3);
    else {
      expect(await mayRunOn({ ask, url }, arrived, { stepId: 1 })).toBe(true);
      first.kill("SIGTERM");
      // The signal has arrived when a step does not run on any more.
      let stepId = 2;
      while (await mayRunOn({ ask, url }, arrived, { stepId })) stepId++;
    }
    return 200;
  });
  await startRun(ask, url);
  expect(await first.ended).toMatchObject({ code: 0 });
  expect(arrivals).toHaveLength(1);
  ask = createAsk(await start());
  await waitForSuccess(ask);
  expect(arrivals).toHaveLength(2);
  expect(arrivals[1]?.history.length).toBeGreaterThan(2);
});

/** Starts two nodes on one database. The endpoint posts to the second one. */
async function startTwoNodes() {
  const { nodes, token } = await startNodes(await freshDatabase(), ["one", "two"]);
  const [sender, other] = nodes;
  if (!sender || !other) throw new Error("two nodes are needed");
  onTestFinished(() => other.kill("SIGKILL"));
  return { sender, ask: createAsk(other, token), askSender: createAsk(sender, token) };
}

test(
  "a chain continues while its sender stops, if its posts go to another node",
  { timeout: 120_000, tags: "long" },
  async () => {
    const { sender, ask, askSender } = await startTwoNodes();
    const { arrivals, url } = await startEndpoint(async (arrived) => {
      expect(await mayRunOn({ ask, url }, arrived, { stepId: 1 })).toBe(true);
      sender.kill("SIGTERM");
      await pause(1_000);
      await runSteps({ ask, url }, { ...arrived, history: [...arrived.history, { body: "" }] }, 4);
      return 200;
    });
    await startRun(askSender, url);
    await waitForSuccess(ask);
    expect(await sender.ended).toMatchObject({ code: 0 });
    expect(arrivals).toHaveLength(1);
  },
);

test(
  "a chain continues until the takeover when its sender is killed, and loses no step",
  { timeout: 120_000, tags: "long" },
  async () => {
    const { sender, ask, askSender } = await startTwoNodes();
    const executed: number[] = [];
    let takenAt = Infinity;
    const { arrivals, url } = await startEndpoint(async (arrived) => {
      if (arrived.retried !== "0") takenAt = Math.min(takenAt, arrived.history.length);
      for (let stepId = arrived.history.length; stepId <= takenAt + 2; stepId++) {
        executed.push(stepId);
        if (!(await mayRunOn({ ask, url }, arrived, { stepId }))) return 200;
        if (stepId === 2) sender.kill("SIGKILL");
        await pause(50);
      }
      await finishRun(ask, arrived.runId);
      return 200;
    });
    await startRun(askSender, url);
    await waitForSuccess(ask);
    const last = Math.max(...executed);
    expect([...new Set(executed)].sort((a, b) => a - b)).toEqual(
      Array.from({ length: last }, (_, index) => index + 1),
    );
    // Only the step that was in flight at the takeover is executed again.
    expect(executed.length).toBeLessThanOrEqual(last + 1);
    expect(arrivals.some(({ retried }) => retried !== "0")).toBe(true);
  },
);
