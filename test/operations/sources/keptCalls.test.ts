import { createHmac } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { createCipher } from "../../../src/engine/store/layout/keyRing.ts";
import { keptCallTable } from "../../../src/operations/sources/keptTable.ts";
import { KeptCallRemoval } from "../../../src/operations/sources/keptRemoval.ts";
import { maxKeptBytes, maxKeptCalls } from "../../../src/operations/sources/keptCall.ts";
import { expectStoredBytesInMemory } from "../../engine/store/sql/stored.ts";
import type { TestServer } from "../../api/testServer.ts";
import { createTestServer, otherToken, testTime } from "../../api/testServer.ts";
import type { Made } from "./sourceRequests.ts";
import { call, change, github, make, signed } from "./sourceRequests.ts";

const minute = 60_000;
const hour = 60 * minute;
const wrong = { scheme: "github", secret: "old-secret" };
const stripe = (secret: string) => ({ scheme: "stripe", secret });

let server: TestServer;
let source: Made;
beforeEach(async () => {
  server = await createTestServer();
  source = await make(server, { keepsRejected: true, verification: wrong });
});

const reject = async (body: string, event = "evt-1"): Promise<void> => {
  const { status } = await call(server, source.path, { body, headers: signed(body, { event }) });
  expect(status).toBe(401);
};
const rejections = async (id = source.sourceId) =>
  (await server.ask("GET", `/v2/sources/${id}/rejections`)).body.rejections;
const send = async (token?: string) =>
  server.ask("POST", `/v2/sources/${source.sourceId}/rejections/send`, token === undefined ? {} : { token });
const correct = () => change(server, source.sourceId, { verification: github });
const deliveredBodies = (): string[] =>
  server.deliveries.splice(0).map(({ message }) => Buffer.from(message.body).toString());

describe("a source that keeps rejected calls", () => {
  test("sends them once when its secret is corrected", async () => {
    await reject('{"order":1}', "evt-1");
    server.clock.now += minute;
    await reject('{"order":2}', "evt-2");
    expect((await send()).body).toMatchObject({ sent: 0, refused: [{ callId: "0" }, { callId: "1" }] });
    await correct();
    expect((await send()).body).toEqual({ sent: 2, repeated: 0, refused: [] });
    expect(deliveredBodies()).toEqual(['{"order":1}', '{"order":2}']);
    expect((await send()).body).toEqual({ sent: 0, repeated: 0, refused: [] });
    expect(deliveredBodies()).toEqual([]);
    expect(server.memory.tables.keptCalls.size).toBe(0);
  });

  test("delivers the call as it arrived", async () => {
    await reject('{"order":1}');
    await correct();
    await send();
    const { message } = server.delivery();
    const headers = Object.fromEntries(message.headers);
    expect(headers).toMatchObject({ "Content-Type": "application/json", "X-Github-Delivery": "evt-1" });
    const shown = (await server.ask("GET", `/v2/messages/${message.id}`)).body;
    expect(shown.deduplication).toMatchObject({ by: "source" });
  });

  test("does not send what its sender has repeated meanwhile", async () => {
    await reject("{}");
    await correct();
    expect((await call(server, source.path, { body: "{}", headers: signed("{}") })).status).toBe(200);
    expect((await send()).body).toEqual({ sent: 0, repeated: 1, refused: [] });
    expect(deliveredBodies()).toEqual(["{}"]);
  });

  test.each([{}, { "Svc-Deduplication-Window": "1h" }])(
    "does not send what was accepted hours before, with the settings %j",
    async (settings) => {
      await change(server, source.sourceId, { settings });
      await reject("{}");
      await correct();
      server.clock.now += minute;
      expect((await call(server, source.path, { body: "{}", headers: signed("{}") })).status).toBe(200);
      server.clock.now += 23 * hour;
      expect((await send()).body).toEqual({ sent: 0, repeated: 1, refused: [] });
      expect(deliveredBodies()).toEqual(["{}"]);
    },
  );

  test("publishes no repeated event a day after the kept call was sent", async () => {
    await reject("{}");
    await correct();
    expect((await send()).body).toMatchObject({ sent: 1 });
    server.clock.now += 23 * hour;
    expect((await call(server, source.path, { body: "{}", headers: signed("{}") })).status).toBe(202);
    expect(deliveredBodies()).toEqual(["{}"]);
  });

  test("are counted as stored bytes, and are not kept if the storage of the account is full", async () => {
    await reject("x".repeat(10_000));
    expectStoredBytesInMemory(server.memory);
    const account = [...server.memory.tables.sources.values()][0]?.account ?? "";
    const stored = [...server.memory.tables.usage.values()]
      .filter((row) => row.account === account && row.id.startsWith("3h/"))
      .reduce((sum, { storedBytes }) => sum + storedBytes, 0);
    expect(stored).toBeGreaterThan(10_000);
    const change = { limits: { storageBytes: 1000 } };
    await server.store.execute("changeAccount", { account, change });
    await server.store.execute("recordStorage", { account, bytes: stored });
    server.clock.now += minute;
    await reject("{}");
    expect((await rejections())[0]).not.toHaveProperty("callId");
    expect((await rejections())[1]).toHaveProperty("callId");
    await server.store.execute("changeAccount", { account, change: { limits: { storageBytes: null } } });
    await correct();
    expect((await send()).body).toMatchObject({ sent: 1 });
    expectStoredBytesInMemory(server.memory);
  });

  test("two requests at once send a call once", async () => {
    await reject("{}");
    await change(server, source.sourceId, { deduplicate: false });
    await correct();
    const answers = await Promise.all([send(), send()]);
    expect(answers.reduce((sum, { body }) => sum + body.sent, 0)).toBe(1);
    expect(deliveredBodies()).toEqual(["{}"]);
  });

  test("are sent by few requests of an account at once, because each reads all of them", async () => {
    await reject("{}");
    const other = await make(server, { keepsRejected: true, verification: wrong });
    const sendOther = () => server.ask("POST", `/v2/sources/${other.sourceId}/rejections/send`);
    const answers = await Promise.all([send(), sendOther(), send(), sendOther(), send()]);
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 200, 503, 503, 503]);
    expect(answers.find(({ status }) => status === 503)?.body).toMatchObject({
      code: "busy",
      error: "source: rejected calls of this account are being sent; retry later",
    });
    await correct();
    expect((await send()).body).toMatchObject({ sent: 1 });
  });

  test("verifies a call as of the time at which it arrived", async () => {
    const sentAt = Math.floor(testTime / 1000);
    const mac = createHmac("sha256", "new").update(`${sentAt}.{"id":"evt_1"}`).digest("hex");
    await change(server, source.sourceId, { verification: stripe("whsec_old") });
    const headers = { "stripe-signature": `t=${sentAt},v1=${mac}` };
    await call(server, source.path, { body: '{"id":"evt_1"}', headers });
    server.clock.now += 3 * hour;
    await change(server, source.sourceId, { verification: stripe("new") });
    // The same call is too old now.
    expect((await call(server, source.path, { body: '{"id":"evt_1"}', headers })).status).toBe(401);
    expect((await send()).body).toMatchObject({ sent: 1, refused: [{ callId: "1" }] });
  });

  test("shows the whole call to a token that may read, without the secret of the source", async () => {
    const body = `{"hook":"${source.url}","text":"${"x".repeat(20_000)}"}`;
    await reject(body);
    const [{ callId, keptUntil, truncated }] = await rejections();
    expect({ callId, keptUntil, truncated }).toEqual({
      callId: "0",
      keptUntil: testTime + 24 * hour,
      truncated: true,
    });
    const path = `/v2/sources/${source.sourceId}/rejections/${callId}`;
    const shown = (await server.ask("GET", path)).body;
    expect(shown.body).toBe(body.replaceAll(source.secret, "*".repeat(source.secret.length)));
    expect(shown).toMatchObject({ callId, time: testTime, callerIP: "127.0.0.1" });
    expect(JSON.stringify(shown)).not.toContain(source.secret);
    const tokens = async (...verbs: string[]) =>
      (await server.ask("POST", "/v2/tokens", { body: JSON.stringify({ verbs }) })).body.token;
    expect((await server.ask("GET", path, { token: await tokens("manage") })).status).toBe(403);
    expect((await server.ask("GET", path, { token: await tokens("read") })).status).toBe(200);
    expect((await server.ask("GET", path, { token: otherToken })).status).toBe(404);
    expect((await send(await tokens("read"))).status).toBe(403);
    expect((await send(otherToken)).status).toBe(404);
    expect((await server.ask("GET", `${path}0`)).status).toBe(404);
  });

  test("keeps them for a day", async () => {
    const removal = new KeptCallRemoval({ store: server.store, clock: { now: () => server.clock.now } });
    await reject("{}");
    expect(await removal.task.nextAt()).toBe(testTime + 24 * hour);
    server.clock.now += 24 * hour;
    await correct();
    expect((await send()).body).toEqual({ sent: 0, repeated: 0, refused: [] });
    expect((await rejections())[0]).not.toHaveProperty("callId");
    await removal.task.run();
    expect(server.memory.tables.keptCalls.size).toBe(0);
    expect(await removal.task.nextAt()).toBe(Infinity);
  });

  test("keeps a limited number of calls and bytes, the newest ones", async () => {
    for (let at = 0; at < maxKeptCalls + 5; at++) {
      await reject(`{"order":${at}}`, `evt-${at}`);
      server.clock.now += 2_000;
    }
    expect(server.memory.tables.keptCalls.size).toBe(maxKeptCalls);
    for (let at = 0; at < 5; at++) {
      await reject("x".repeat(maxKeptBytes / 4));
      server.clock.now += 2_000;
    }
    expect(server.memory.tables.keptCalls.size).toBe(3);
  });

  test("drops them if it is deleted, or does not keep calls any more", async () => {
    await reject("{}");
    await change(server, source.sourceId, { keepsRejected: false });
    expect(server.memory.tables.keptCalls.size).toBe(0);
    await change(server, source.sourceId, { keepsRejected: true });
    await reject("{}");
    expect(server.memory.tables.keptCalls.size).toBe(1);
    await server.ask("DELETE", `/v2/sources/${source.sourceId}`);
    expect(server.memory.tables.keptCalls.size).toBe(0);
  });

  test("sends nothing while it is paused", async () => {
    await reject("{}");
    await change(server, source.sourceId, { verification: github, paused: true });
    expect((await send()).status).toBe(409);
  });
});

test("by default, a source keeps no call whole", async () => {
  source = await make(server, { verification: wrong });
  await reject("{}");
  expect(server.memory.tables.keptCalls.size).toBe(0);
  expect((await rejections())[0]).not.toHaveProperty("callId");
});

test("the content of a kept call is encrypted for its own row", () => {
  const cipher = createCipher({ keyRing: `1:${Buffer.alloc(32, 1).toString("base64")}` });
  const whole = {
    ...{ url: "https://q.example/v2/in/s3cret", secret: "s3cret", headers: ["X", "y"], callerIp: null },
    body: Buffer.from("card 4711"),
  };
  const row = { account: "acc", id: "src_1/000000000000", dueAt: 2, time: 1, whole };
  const columns = keptCallTable.write(row, cipher);
  expect(JSON.stringify(columns)).not.toMatch(/s3cret|4711|Y2FyZCA0NzEx/);
  const read = keptCallTable.read(columns, cipher);
  expect({ ...read, whole: { ...read.whole, body: Buffer.from(read.whole.body) } }).toEqual(row);
  expect(() => keptCallTable.read({ ...columns, account: "other" }, cipher)).toThrow("cannot decrypt");
});
