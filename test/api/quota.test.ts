import { expect, test } from "vitest";
import { storageDuty } from "../../src/engine/storage.ts";
import type { House } from "./house.ts";
import { house, otherToken } from "./house.ts";

const to = "/v2/publish/https://e.example/";
const basic = { authorization: `Basic ${Buffer.from("acc_1:pass").toString("base64")}` };

/** A house whose first account has a quota, and a way to let the duty look. */
async function limited(storageBytes: number): Promise<{ home: House; look(): Promise<void> }> {
  const home = await house();
  await home.store.execute("changeAccount", { account: "acc_1", change: { limits: { storageBytes } } });
  const duty = storageDuty({ store: home.store, clock: { now: () => home.clock.now, sleep: async () => undefined } });
  return { home, look: () => duty.run() };
}

test("beyond its quota an account gets 429 for what it publishes, reads and deletes what it has, and stops nobody else", async () => {
  const { home, look } = await limited(20_000);
  expect((await home.ask("POST", to, { body: "x".repeat(30_000), headers: { "svc-delay": "1d" } })).status).toBe(200);
  await look();
  const refused = await home.ask("POST", to, { body: "small" });
  expect([refused.status, refused.body]).toEqual([429, { error: expect.stringContaining("the limit is 20000") }]);
  expect((await home.ask("POST", "/v2/enqueue/q/https://e.example/", { body: "small" })).status).toBe(429);
  const batch = await home.ask("POST", "/v2/batch", { body: JSON.stringify([{ destination: "https://e.example/", body: "x" }]) });
  expect(JSON.stringify(batch.body)).toContain("the limit is 20000");
  expect((await home.ask("POST", "/v2/trigger/https://w.example/flow", { body: "{}" })).status).toBe(429);
  const schedule = { headers: { "svc-cron": "* * * * *" } };
  expect((await home.ask("POST", "/v2/schedules/https://e.example/", schedule)).status).toBe(429);
  expect((await home.ask("POST", to, { body: "small", token: otherToken })).status).toBe(200);
  expect((await home.ask("GET", "/v2/logs")).status).toBe(200);
  expect((await home.ask("DELETE", "/v2/messages")).status).toBe(200);
});

test("the record and the statistics of an account with a quota show what it uses and what it may", async () => {
  const { home } = await limited(20_000);
  await home.ask("POST", to, { body: "x".repeat(10_000) });
  const used = await home.store.read.storedBytes("acc_1");
  expect(used).toBeGreaterThan(10_000);
  const shown = { storage_bytes: used, max_storage_bytes: 20_000 };
  expect((await home.ask("GET", "/v2/svc/user/acc_1", { headers: basic, token: null })).body).toMatchObject(shown);
  expect((await home.ask("GET", "/v2/svc/users", { headers: basic, token: null })).body).toMatchObject([shown]);
  expect((await home.ask("GET", "/v2/svc/stats/acc_1", { headers: basic, token: null })).body).toMatchObject(shown);
  await home.store.execute("changeAccount", { account: "acc_1", change: { limits: { storageBytes: null } } });
  expect((await home.ask("GET", "/v2/svc/user/acc_1", { headers: basic, token: null })).body).toMatchObject({ storage_bytes: null });
});
