import { describe, expect, test } from "vitest";
import type { Store } from "../../../src/engine/store/store.ts";
import { failMessage } from "../../api/routes/deadLetters/deadLetters.ts";
import { createTestServer, otherToken } from "../../api/testServer.ts";
import { createJobRunner } from "./jobRunner.ts";

test("a job that fails for an unknown reason waits, and delays no other job", async () => {
  const home = await createTestServer();
  let isBroken = true;
  const store: Store = {
    ...home.store,
    execute: async (name, input, options) => {
      const { account } = input as { account?: string };
      if (name === "continueJob" && isBroken && account === "acc_1") throw new Error("broken");
      return home.store.execute(name, input, options);
    },
  };
  const failures: string[] = [];
  const runner = createJobRunner({
    store,
    now: () => home.clock.now,
    hasOtherNodes: false,
    logFailure: (message) => void failures.push(message),
  });
  const body = JSON.stringify({ action: "dlq.delete", filter: {} });
  const { jobId } = (await home.ask("POST", "/v2/jobs", { body })).body;
  const other = (await home.ask("POST", "/v2/jobs", { body, token: otherToken })).body.jobId;
  const readState = async (id: string, token?: string): Promise<string> =>
    (await home.ask("GET", `/v2/jobs/${id}`, token === undefined ? {} : { token })).body.state;
  let next = 0;
  for (let round = 0; round < 4; round++) next = await runner.round();
  expect(await readState(other, otherToken)).toBe("done");
  expect(await readState(jobId)).toBe("running");
  expect(failures).toEqual([`continuing the job ${jobId} failed; it continues in a second`]);
  expect(next).toBe(home.clock.now + 1_000);
  isBroken = false;
  home.clock.now = next;
  await runner.round();
  expect(await readState(jobId)).toBe("done");
});

describe("a node whose clock differs from the time of the store", () => {
  const hour = 3_600_000;

  const startJob = async ({ offset }: { offset: number }) => {
    const home = await createTestServer();
    for (let at = 0; at < 3; at++) await failMessage(home, `https://one.example/${at}`);
    const body = JSON.stringify({ action: "dlq.retry", filter: {}, rate: 1 });
    const { jobId } = (await home.ask("POST", "/v2/jobs", { body })).body;
    const runner = createJobRunner({ store: home.store, now: () => home.clock.now + offset });
    const readDone = async (): Promise<number> => (await home.ask("GET", `/v2/jobs/${jobId}`)).body.done;
    return { home, runner, readDone };
  };

  test.each([hour, -hour])("keeps the rate of a job: %d ms ahead", async (offset) => {
    const { home, runner, readDone } = await startJob({ offset });
    for (let round = 0; round < 5; round++) await runner.round();
    expect(await readDone()).toBe(1);
    const next = await runner.round();
    expect(next).toBe(home.clock.now + offset + 1_000);
    home.clock.now += 1_000;
    await runner.round();
    expect(await readDone()).toBe(2);
  });
});
