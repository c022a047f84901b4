import { describe, expect, test } from "vitest";
import { failMessage, listDeadLetters } from "../deadLetters/deadLetters.ts";
import { failRunAndRead, callbackTo } from "../lists/failedRunLists.ts";
import type { TestServer } from "../../testServer.ts";
import { createTestServer } from "../../testServer.ts";
import { makeDeletion } from "../../../makeDeletion.ts";

const day = 24 * 60 * 60 * 1_000;
const logRetention = 3 * day;

/** Removes expired rows, with 3 days of retention for the log and 7 days for dead letters. */
const expire = ({ store, clock }: TestServer) =>
  store.execute("expire", {
    account: "acc_1",
    retention: { log: logRetention, deadLetters: 7 * day },
    now: clock.now,
    limit: 500,
  });
const deleted = ({ store }: TestServer, dlqId: string) =>
  store.execute("bulk", makeDeletion({ account: "acc_1", dlqIds: [dlqId], logRetention }));
const trimmed = async ({ store }: TestServer) => {
  await store.execute("changeAccount", { account: "acc_1", change: { limits: { deadLetters: 0 } } });
  const { id } = await store.read.findOverLimit("deadLetters", "acc_1", 0);
  await store.execute("trim", {
    account: "acc_1",
    tooMany: { log: null, keptLog: null, deadLetters: { id: id ?? "", limit: 0 }, audit: null },
    limit: 10,
  });
};

/** Returns the states of a message from every list that shows them. */
async function statesOf({ ask }: TestServer, id: string): Promise<string[][]> {
  const one = (await ask("GET", `/v2/events?messageId=${id}&order=earliestFirst`)).body;
  const all = (await ask("GET", "/v2/logs?order=earliestFirst")).body;
  return [one.events, all.logs].map((events: { state: string }[]) => events.map(({ state }) => state));
}

test("a failed message shows its whole log until its dead letter is deleted", async () => {
  const server = await createTestServer();
  const id = await failMessage(server, "https://one.example");
  const whole = ["CREATED", "ACTIVE", "ERROR", "FAILED"];
  server.clock.now += 5 * day;
  await expire(server);
  expect(await statesOf(server, id)).toEqual([whole, whole]);
  const [entry] = (await listDeadLetters(server)).messages;
  await deleted(server, entry?.dlqId ?? "");
  expect(await statesOf(server, id)).toEqual([[], []]);
  expect((await server.ask("GET", `/v2/messages/${id}`)).status).toBe(404);
});

describe("a failed run", () => {
  const readViews = async ({ ask }: TestServer) => {
    const [run] = (await ask("GET", "/v2/workflows/logs?workflowRunId=wfr_1")).body.runs;
    const { events } = (await ask("GET", "/v2/workflows/events?workflowRunId=wfr_1")).body;
    const status = (await ask("GET", "/v2/workflows/runs/wfr_1/status")).body;
    return { run, events, status };
  };
  const statesIn = ({ events }: Awaited<ReturnType<typeof readViews>>) =>
    events.map(({ state }: { state: string }) => state);

  test("shows how it ended as long as its dead letter exists, even after the log retention", async () => {
    const server = await createTestServer();
    const dlqId = await failRunAndRead(server, "wfr_1");
    const before = await readViews(server);
    expect(statesIn(before)).toEqual(expect.arrayContaining(["ERROR", "FAILED", "RUN_FAILED"]));
    expect(JSON.stringify(before.run.steps)).toContain("status 500");
    server.clock.now += 5 * day;
    await expire(server);
    const after = await readViews(server);
    expect([after.run, after.events]).toEqual([before.run, before.events]);
    expect(after.run.dlqId).toBe(dlqId);
  });

  test.each(["deleted", "too many", "expired"])(
    "no longer shows its dead letter when that is gone: %s",
    async (how) => {
      const server = await createTestServer();
      const dlqId = await failRunAndRead(server, "wfr_1", {
        failureCallback: callbackTo("https://app.example/failed"),
      });
      const { run, events, status } = await readViews(server);
      expect([run.dlqId, run.failureFunction.dlqId, status.failure.dlqId]).toEqual([dlqId, dlqId, dlqId]);
      expect(events.filter((event: { dlqId?: string }) => event.dlqId === dlqId)).toHaveLength(2);
      if (how === "deleted") await deleted(server, dlqId);
      else if (how === "too many") await trimmed(server);
      else {
        server.clock.now += 10;
        await server.store.execute("expire", {
          account: "acc_1",
          now: server.clock.now,
          limit: 500,
          retention: { log: logRetention, deadLetters: 1 },
        });
      }
      const after = await readViews(server);
      expect(statesIn(after)).toEqual(events.map(({ state }: { state: string }) => state));
      expect(JSON.stringify(after)).not.toContain(dlqId);
    },
  );
});
