import { setTimeout as pause } from "node:timers/promises";
import { expect, test } from "vitest";
import type { Arrived, Ask } from "./runEndpoint.ts";
import {
  finishRun,
  postStep,
  startEndpoint,
  startRun,
  startServer,
  trigger,
  waitForSuccess,
} from "./runEndpoint.ts";

// Real servers, and an endpoint of a run that controls its connections.

/** Opens a connection to the endpoint with a message, so that the first call of a run reuses it. */
async function openConnection(ask: Ask, url: string, arrivals: readonly Arrived[]): Promise<void> {
  await ask("POST", `publish/${url}`, { body: "[]" });
  await expect.poll(() => arrivals.length).toBe(1);
  await pause(200);
}

/** Posts the next step of a run with one step, or reports the end of the run. */
async function proceed(ask: Ask, url: string, { history, runId }: Arrived): Promise<void> {
  if (history.length === 1) await postStep(ask, { url, runId });
  if (history.length === 2) await finishRun(ask, runId);
}

test("a reused connection that closes after the post executes no stored step again", async () => {
  const { ask } = await startServer();
  const { arrivals, url } = await startEndpoint(async (arrived) => {
    await proceed(ask, url, arrived);
    return arrived.history.length !== 1 && 200;
  });
  await openConnection(ask, url, arrivals);
  await trigger(ask, url);
  await waitForSuccess(ask);
  await pause(300);
  expect(arrivals.map(({ history }) => history.length)).toEqual([0, 1, 2]);
  expect(arrivals[1]?.connection).toBe(1);
});

test("a reused connection that closes before the post costs another attempt, but no retry", async () => {
  const { ask } = await startServer();
  const { arrivals, url } = await startEndpoint(async (arrived) => {
    if (arrived.history.length === 1 && arrived.connection === 1) return false;
    await proceed(ask, url, arrived);
    return 200;
  });
  await openConnection(ask, url, arrivals);
  await trigger(ask, url);
  await waitForSuccess(ask);
  // The run has no retries.
  const seen = arrivals.map(({ history, retried }) => `${history.length} ${retried}`);
  expect(seen).toEqual(["0 0", "1 0", "1 1", "2 0"]);
});

test("a server that stops takes the posts of the calls that it has made", async () => {
  const { server, ask } = await startServer("--grace", "30m");
  const posted: unknown[] = [];
  const { arrivals, url } = await startEndpoint(async ({ runId }) => {
    server.kill("SIGTERM");
    await pause(1_500);
    posted.push(await postStep(ask, { url, runId }).catch((error: unknown) => error));
    return 200;
  });
  await trigger(ask, url);
  // A server that waited until the grace ends would outlast the test.
  expect((await server.ended).code).toBe(0);
  expect(posted).toMatchObject([{ status: 200, body: [{ messageId: expect.any(String) }] }]);
  expect(arrivals).toHaveLength(1);
});

/** An endpoint that posts a step in each call, and ends the run after `count` steps. */
const countedSteps = (ask: () => Ask, count: number) => {
  const overlaps: number[] = [];
  let open: { at: number } | null = null;
  return {
    overlaps,
    respond: async ({ history, runId }: Arrived, url: string, mayEnd: boolean): Promise<number> => {
      // The wait begins when the step is accepted, which is after it was sent.
      if (open && performance.now() - open.at < 45) overlaps.push(history.length);
      const call = { at: Infinity };
      open = call;
      if (history.length > count) await finishRun(ask(), runId);
      else {
        call.at = performance.now();
        await postStep(ask(), { url, runId, stepId: history.length });
        if (!mayEnd) return new Promise(() => undefined);
        // The response begins a little after the post was accepted.
        await pause(2);
      }
      if (open === call) open = null;
      return 200;
    },
  };
};

test("a call begins when the call that posted its step has ended", async () => {
  const { ask } = await startServer();
  const { overlaps, respond } = countedSteps(() => ask, 20);
  const { arrivals, url } = await startEndpoint((arrived) => respond(arrived, url, true));
  await startRun(ask, url);
  await waitForSuccess(ask);
  expect(arrivals).toHaveLength(21);
  expect(overlaps).toEqual([]);
});

test("a call without a response delays the next one by 50 ms", async () => {
  const { ask } = await startServer();
  const { overlaps, respond } = countedSteps(() => ask, 3);
  const { arrivals, url } = await startEndpoint((arrived) =>
    respond(arrived, url, arrived.history.length > 3),
  );
  await startRun(ask, url);
  await waitForSuccess(ask);
  expect(arrivals.map(({ history }) => history.length)).toEqual([1, 2, 3, 4]);
  expect(overlaps).toEqual([]);
});
