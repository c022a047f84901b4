import { expect, test } from "vitest";
import { createJobRunner } from "./jobRunner.ts";
import { createTestServer } from "../../api/testServer.ts";
import { failMessage, listDeadLetters } from "../../api/routes/deadLetters/deadLetters.ts";

/** A server whose disk the test makes low, with dead letters and a job that retries them. */
async function startRetry({ isLow, canary }: { isLow: boolean; canary?: number }) {
  const disk = { isLow: false };
  const server = await createTestServer({ isDiskLow: () => disk.isLow });
  for (let at = 0; at < 6; at++) await failMessage(server, "https://one.example");
  disk.isLow = isLow;
  const body = JSON.stringify({ action: "dlq.retry", filter: {}, canary });
  const { jobId } = (await server.ask("POST", "/v2/jobs", { body })).body;
  const runner = createJobRunner({ store: server.store, now: () => server.clock.now, hasOtherNodes: false });
  const readJob = async () => (await server.ask("GET", `/v2/jobs/${jobId}`)).body;
  const round = async () => {
    server.clock.now = Math.max(server.clock.now, await runner.round());
    return readJob();
  };
  return { server, disk, jobId: String(jobId), round, readJob };
}

test("a job that retries waits while the disk is almost full, and continues when it has room", async () => {
  const { server, disk, round } = await startRetry({ isLow: true });
  await round();
  for (let at = 0; at < 3; at++)
    expect(await round()).toMatchObject({ state: "waiting", waitingFor: "disk", done: 0, failed: 0 });
  expect((await listDeadLetters(server)).messages).toHaveLength(6);
  disk.isLow = false;
  const running = await round();
  expect(running).toMatchObject({ state: "running", done: 4 });
  expect(running).not.toHaveProperty("waitingFor");
  disk.isLow = true;
  expect(await round()).toMatchObject({ state: "waiting", waitingFor: "disk", done: 4 });
  disk.isLow = false;
  expect(await round()).toMatchObject({ state: "done", total: 6, done: 6, failed: 0 });
  expect((await listDeadLetters(server)).messages).toEqual([]);
});

test("a job tells a wait for its canary from a wait for the disk", async () => {
  const { server, disk, round, readJob } = await startRetry({ isLow: true, canary: 2 });
  await round();
  expect(await round()).toMatchObject({ state: "waiting", waitingFor: "disk", done: 0 });
  disk.isLow = false;
  expect(await round()).toMatchObject({ state: "waiting", waitingFor: "canary", done: 2 });
  for (const delivery of server.deliveries.splice(0)) await server.settle(delivery, { status: 200 });
  disk.isLow = true;
  await round();
  expect(await round()).toMatchObject({ state: "waiting", waitingFor: "disk", done: 2 });
  disk.isLow = false;
  for (let at = 0; at < 3 && (await readJob()).state !== "done"; at++) await round();
  expect(await readJob()).toMatchObject({ state: "done", done: 6, failed: 0 });
});

test("a job that waits for the disk can be stopped", async () => {
  const { server, jobId, round } = await startRetry({ isLow: true });
  await round();
  await round();
  const stopped = await server.ask("DELETE", `/v2/jobs/${jobId}`);
  expect(stopped.body).toMatchObject({ state: "stopped", done: 0 });
  expect(stopped.body).not.toHaveProperty("waitingFor");
  expect(await round()).toMatchObject({ state: "stopped", done: 0 });
});
