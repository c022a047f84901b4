import { describe, expect, test } from "vitest";
import { Refusal } from "../../../src/engine/core/values/errors.ts";
import type { Store } from "../../../src/engine/store/store.ts";
import { failMessage } from "../../api/routes/deadLetters/deadLetters.ts";
import { createTestServer, otherToken } from "../../api/testServer.ts";
import { createJobRunner } from "./jobRunner.ts";

test("a job that fails for an unknown reason waits, and delays no other job", async () => {
  const server = await createTestServer();
  let isBroken = true;
  const store: Store = {
    ...server.store,
    execute: async (name, input, options) => {
      const { account } = input as { account?: string };
      if (name === "continueJob" && isBroken && account === "acc_1") throw new Error("broken");
      return server.store.execute(name, input, options);
    },
  };
  const failures: string[] = [];
  const runner = createJobRunner({
    store,
    now: () => server.clock.now,
    hasOtherNodes: false,
    logFailure: (message) => void failures.push(message),
  });
  const body = JSON.stringify({ action: "dlq.delete", filter: {} });
  const { jobId } = (await server.ask("POST", "/v2/jobs", { body })).body;
  const other = (await server.ask("POST", "/v2/jobs", { body, token: otherToken })).body.jobId;
  const readState = async (id: string, token?: string): Promise<string> =>
    (await server.ask("GET", `/v2/jobs/${id}`, token === undefined ? {} : { token })).body.state;
  let next = 0;
  for (let round = 0; round < 4; round++) next = await runner.round();
  expect(await readState(other, otherToken)).toBe("done");
  expect(await readState(jobId)).toBe("running");
  expect(failures).toEqual([`continuing the job ${jobId} failed; it continues in 1 s`]);
  expect(next).toBe(server.clock.now + 1_000);
  isBroken = false;
  server.clock.now = next;
  await runner.round();
  expect(await readState(jobId)).toBe("done");
});

/** Returns a server with three jobs, whose portions are refused while they are in `refused`. */
async function startRefused() {
  const server = await createTestServer();
  const refused = new Set<string>();
  const tried: string[] = [];
  const store: Store = {
    ...server.store,
    execute: async (name, input, options) => {
      const { jobId } = input as { jobId?: string };
      if (name === "continueJob" && jobId !== undefined) tried.push(jobId);
      if (name === "continueJob" && jobId !== undefined && refused.has(jobId))
        throw new Refusal("unavailable", "storage unavailable: nothing was stored; retry later");
      return server.store.execute(name, input, options);
    },
  };
  const failures: string[] = [];
  const logFailure = (message: string): void => void failures.push(message);
  const runner = createJobRunner({ store, now: () => server.clock.now, hasOtherNodes: false, logFailure });
  const jobs: string[] = [];
  for (const label of ["a", "b", "c"]) {
    const body = JSON.stringify({ action: "dlq.delete", filter: { label } });
    jobs.push((await server.ask("POST", "/v2/jobs", { body })).body.jobId);
    server.clock.now += 1;
  }
  // Each job is counted first.
  await runner.round();
  const readStates = async (): Promise<string[]> =>
    Promise.all(jobs.map(async (id) => (await server.ask("GET", `/v2/jobs/${id}`)).body.state));
  return { server, runner, jobs, refused, tried, failures, readStates };
}

describe("a job whose portion is refused because the storage is unavailable", () => {
  test("waits longer each time, and delays no other job", async () => {
    const { server, runner, jobs, refused, failures, readStates } = await startRefused();
    for (const id of jobs.slice(0, 1)) refused.add(id);
    while (failures.length < 7) {
      server.clock.now = await runner.round();
      expect(await readStates()).toEqual(["running", "done", "done"]);
    }
    expect(failures).toEqual(
      [1, 2, 4, 8, 16, 30, 30].map(
        (time) => `continuing the job ${jobs[0]} failed; it continues in ${time} s`,
      ),
    );
    refused.clear();
    server.clock.now += 60_000;
    await runner.round();
    expect(await readStates()).toEqual(["done", "done", "done"]);
  });

  test("ends the round if the next job fails as well, and neither is tried before others again", async () => {
    const { server, runner, jobs, refused, tried, readStates } = await startRefused();
    const [a, b] = jobs as [string, string];
    refused.add(a).add(b);
    await expect(runner.round()).rejects.toThrow("storage unavailable");
    expect(tried).toEqual([a, b]);
    await runner.round();
    expect(await readStates()).toEqual(["running", "running", "done"]);
    server.clock.now += 1_000;
    refused.clear();
    await runner.round();
    expect(await readStates()).toEqual(["done", "done", "done"]);
  });
});

describe("a node whose clock differs from the time of the store", () => {
  const hour = 3_600_000;

  const startJob = async ({ offset }: { offset: number }) => {
    const server = await createTestServer();
    for (let at = 0; at < 3; at++) await failMessage(server, `https://one.example/${at}`);
    const body = JSON.stringify({ action: "dlq.retry", filter: {}, rate: 1 });
    const { jobId } = (await server.ask("POST", "/v2/jobs", { body })).body;
    const runner = createJobRunner({ store: server.store, now: () => server.clock.now + offset });
    const readDone = async (): Promise<number> => (await server.ask("GET", `/v2/jobs/${jobId}`)).body.done;
    return { server, runner, readDone };
  };

  test.each([hour, -hour])("keeps the rate of a job: %d ms ahead", async (offset) => {
    const { server, runner, readDone } = await startJob({ offset });
    for (let round = 0; round < 5; round++) await runner.round();
    expect(await readDone()).toBe(1);
    const next = await runner.round();
    expect(next).toBe(server.clock.now + offset + 1_000);
    server.clock.now += 1_000;
    await runner.round();
    expect(await readDone()).toBe(2);
  });
});
