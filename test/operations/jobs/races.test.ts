import { expect, test } from "vitest";
import type { Store } from "../../../src/engine/store/store.ts";
import { createTestServer } from "../../api/testServer.ts";
import { listDeadLetters } from "../../api/routes/deadLetters/deadLetters.ts";
import { createJobOf, createRunner, failMany, finish, readJob } from "./jobRunners.ts";

test("a job skips no entry if two nodes have read different entries and continue it at once", async () => {
  const server = await createTestServer();
  await failMany(server, 3);
  const [first] = (await listDeadLetters(server)).messages;
  const jobId = await createJobOf(server, { action: "dlq.delete", filter: {}, rate: 1 });
  const gate = Promise.withResolvers<void>();
  let ofFirst: Promise<unknown> = Promise.resolve();
  const afterGate = (pass: () => Promise<unknown>): Store => ({
    ...server.store,
    execute: async (name, input, options) => {
      if (name === "continueJob") await pass();
      return server.store.execute(name, input, options);
    },
  });
  const slow = createRunner(
    server,
    afterGate(() => gate.promise),
  );
  const other = createRunner(
    server,
    afterGate(async () => {
      gate.resolve();
      await ofFirst;
    }),
    "nod_2",
  );
  await slow.round();
  ofFirst = slow.round();
  await new Promise((resolve) => setImmediate(resolve));
  await server.ask("DELETE", `/v2/dlq/${first?.dlqId}`);
  server.clock.now += 5_000;
  await other.round();
  expect(await readJob(server, jobId)).toMatchObject({ done: 0, failed: 1 });
  expect(await finish(server, jobId, other)).toMatchObject({ state: "done", total: 3, done: 2, failed: 1 });
  expect((await listDeadLetters(server)).messages).toEqual([]);
});
