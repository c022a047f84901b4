import { expect, test } from "vitest";
import type { Store } from "../../../src/engine/store/store.ts";
import { hangingServer } from "./hangingServer.ts";

/** The time within which a bulk action is answered, in milliseconds. */
const bulkLimit = 120_000;
/** Lets the time of a bulk action pass, and more. */
const passing = { step: 5_000, max: 2 * bulkLimit };

const stopped = {
  error:
    "request: a bulk action stops after 106 s; what it did stays done; " +
    "repeat the request to continue, or start a job with POST /v2/jobs",
  code: "too-slow",
};

/** Returns a server whose commands take this time after `hangUp`, in milliseconds. */
async function slowServer(time: number, { inDoubt = false } = {}) {
  const commands: string[] = [];
  const server = await hangingServer(
    (store): Partial<Store> => ({
      isInDoubt: () => inDoubt,
      execute: async (name, input, options) => {
        commands.push(name);
        await new Promise<void>((resolve) => void server.alarms.alarm(time, resolve));
        return store.execute(name, input, options);
      },
    }),
    false,
  );
  return { ...server, commands };
}

test("a slow bulk action is answered with what it did, and its cursor continues it", async () => {
  const { alarms, ask, deliveries, settle, hangUp, commands } = await slowServer(55_000);
  const headers = { "svc-retries": "0" };
  for (let count = 0; count < 12; count++) await ask("POST", "/v2/publish/https://e.example/", { headers });
  for (const delivery of deliveries.splice(0)) await settle(delivery, { status: 500 });
  hangUp();
  const first = ask("POST", "/v2/dlq/retry");
  expect(await alarms.until(first, passing)).toBe(110_000);
  const { status, body } = await first;
  expect([status, body.responses.length, body.cursor]).toEqual([201, 8, expect.stringMatching(/./)]);
  expect(commands).toHaveLength(2);
  const second = ask("POST", `/v2/dlq/retry?cursor=${body.cursor}`);
  await alarms.until(second, passing);
  expect((await second).body).toMatchObject({ responses: { length: 4 }, cursor: "" });
});

test("a slow bulk action without a cursor stops, and a repeat continues it", async () => {
  const { alarms, ask, hangUp, commands, lines } = await slowServer(55_000);
  await ask("POST", "/v2/queues", { body: JSON.stringify({ queueName: "q" }) });
  await ask("POST", "/v2/enqueue/q/https://e.example/", { headers: { "svc-delay": "60s" } });
  hangUp();
  const first = ask("DELETE", "/v2/queues/q");
  expect(await alarms.until(first, passing)).toBe(110_000);
  expect(await first).toMatchObject({ status: 503, body: stopped });
  expect(lines.at(-1)?.fault).toBe("the bulk action was stopped after 106 s");
  expect(commands).toEqual(["pauseLimiter", "cancel"]);
  const second = ask("DELETE", "/v2/queues/q");
  expect(await alarms.until(second, passing)).toBe(110_000);
  expect(await second).toMatchObject({ status: 200, body: { cancelled: 0 } });
});

test.each([
  { storage: "slow", inDoubt: false, body: stopped },
  { storage: "in doubt", inDoubt: true, body: { code: "outcome-unknown" } },
])("a bulk action does nothing after its answer, if the storage is $storage", async ({ inDoubt, body }) => {
  const { alarms, ask, hangUp, commands, lines } = await slowServer(bulkLimit + 10_000, { inDoubt });
  await ask("POST", "/v2/queues", { body: JSON.stringify({ queueName: "q" }) });
  hangUp();
  const first = ask("DELETE", "/v2/queues/q");
  expect(await alarms.until(first, passing)).toBe(bulkLimit);
  expect(await first).toMatchObject({ status: 503, body });
  expect(lines.at(-1)?.fault).toBe("the request was not answered within 120 s");
  await alarms.until(new Promise(() => undefined), { step: 5_000, max: 20_000 });
  expect(commands).toEqual(["pauseLimiter"]);
});
