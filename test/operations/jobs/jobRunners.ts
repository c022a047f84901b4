import { expect } from "vitest";
import type { JobRunner } from "../../../src/operations/jobs/runner.ts";
import type { Store } from "../../../src/engine/store/store.ts";
import { createJobRunner } from "./jobRunner.ts";
import type { TestServer } from "../../api/testServer.ts";
import { failMessage } from "../../api/routes/deadLetters/deadLetters.ts";

/** Returns the runner of a node, whose rounds the test calls. */
export const createRunner = ({ clock }: TestServer, store: Store, node = "nod_1"): JobRunner =>
  createJobRunner({ store, now: () => clock.now, node });

/** Creates a job and returns its id. */
export const createJobOf = async ({ ask }: TestServer, request: object) => {
  const { status, body } = await ask("POST", "/v2/jobs", { body: JSON.stringify(request) });
  expect({ status, body }).toMatchObject({ status: 201 });
  return String(body.jobId);
};

/** Returns a job as the API shows it. */
export const readJob = async ({ ask }: TestServer, jobId: string) =>
  (await ask("GET", `/v2/jobs/${jobId}`)).body;

/** Does rounds, and moves the clock to the next, until a job has ended. Returns it. */
export async function finish(server: TestServer, jobId: string, runner = createRunner(server, server.store)) {
  for (let round = 0; round < 1_000; round++) {
    server.clock.now = Math.max(server.clock.now, Math.min(await runner.round(), server.clock.now + 1_000));
    const job = await readJob(server, jobId);
    if (job.endedAt !== undefined) return job;
  }
  throw new Error("the job does not end");
}

/** Creates dead letters with the labels n0, n1 and so on. */
export async function failMany(server: TestServer, count: number): Promise<void> {
  for (let at = 0; at < count; at++)
    await failMessage(server, "https://one.example", { headers: { "svc-label": `n${at}` } });
}
