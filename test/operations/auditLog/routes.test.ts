import { describe, expect, test } from "vitest";
import type { Route } from "../../../src/api/route/route.ts";
import { changesAnything } from "../../../src/api/route/route.ts";
import { routes } from "../../../src/operations/routes.ts";
import { makeReadOnlyToken } from "../../../src/api/auth/token.ts";
import type { TestServer } from "../../api/testServer.ts";
import { testTime, createTestServer } from "../../api/testServer.ts";
import type { Possessions } from "../../api/routes/accounts/possessions.ts";
import {
  sendRequest,
  formatBasic,
  createPossessions,
  makeRequest,
} from "../../api/routes/accounts/possessions.ts";

const nameOf = ({ method, path }: Pick<Route, "method" | "path">): string => `${method} ${path}`;
const changing = routes.filter(changesAnything);

const ofAccounts = (brand: string): Record<string, readonly string[]> => ({
  [`POST /v2/${brand}/rotate-token/{id}`]: ["token.rotate"],
  [`POST /v2/${brand}/set-plan/{id}`]: ["account.change"],
  [`POST /v2/${brand}/enable-prodpack/{id}`]: ["account.change"],
  [`POST /v2/${brand}/disable-prodpack/{id}`]: ["account.change"],
  [`POST /v2/${brand}/enable-standard-webhooks/{id}`]: ["account.change"],
  [`POST /v2/${brand}/disable-standard-webhooks/{id}`]: ["account.change"],
  [`PATCH /v2/${brand}/update-budget/{id}`]: ["account.change"],
  [`POST /v2/${brand}/move-to-team`]: ["account.change"],
});

/** The audit entries of each route that changes anything, newest first. A missing route fails the test. */
const actions: Readonly<Record<string, readonly string[]>> = {
  "DELETE /v2/topics/{name}": ["group.delete"],
  "POST /v2/topics/{name}/endpoints": ["group.addEndpoints"],
  "DELETE /v2/topics/{name}/endpoints": ["group.removeEndpoints"],
  "PATCH /v2/topics/{name}": ["group.setHeaders"],
  "DELETE /v2/messages/{messageId}": ["message.cancel"],
  "POST /v2/messages/{messageId}/send-now": ["message.sendNow"],
  "POST /v2/messages/{messageId}/end-attempt": ["message.endAttempt"],
  "POST /v2/hosts/{host}/end-attempts": ["host.endAttempts"],
  "DELETE /v2/messages": ["message.cancel"],
  "DELETE /v2/dlq/{dlqId}": ["dlq.delete"],
  "DELETE /v2/dlq": ["dlq.delete"],
  "POST /v2/dlq/retry/{dlqId}": ["dlq.retry"],
  "POST /v2/dlq/retry": ["dlq.retry"],
  "POST /v2/dlq/{dlqId}/replay": ["dlq.replay"],
  "POST /v2/schedules/{destination}": ["schedule.create"],
  "PATCH /v2/schedules/{scheduleId}": ["schedule.change"],
  "DELETE /v2/schedules/{scheduleId}": ["schedule.delete"],
  "PATCH /v2/schedules/{scheduleId}/pause": ["schedule.pause"],
  "POST /v2/schedules/{scheduleId}/pause": ["schedule.pause"],
  "PATCH /v2/schedules/{scheduleId}/resume": ["schedule.resume"],
  "POST /v2/schedules/{scheduleId}/resume": ["schedule.resume"],
  "POST /v2/schedules/{scheduleId}/run": ["schedule.run"],
  "POST /v2/queues": ["queue.set"],
  "POST /v2/queues/{name}/pause": ["queue.pause"],
  "POST /v2/queues/{name}/resume": ["queue.resume"],
  "DELETE /v2/queues/{name}": ["queue.delete", "message.cancel", "queue.pause"],
  "POST /v2/flowControl/{key}/pause": ["flowControl.pause"],
  "POST /v2/flowControl/{key}/resume": ["flowControl.resume"],
  "POST /v2/flowControl/{key}/pin": ["flowControl.pin"],
  "POST /v2/flowControl/{key}/unpin": ["flowControl.unpin"],
  "POST /v2/flowControl/{key}/resetRate": ["flowControl.reset"],
  "POST /v2/flowControl/{key}/reset": ["flowControl.reset"],
  "POST /v2/tokens": ["token.create"],
  "DELETE /v2/tokens/{tokenId}": ["token.revoke"],
  "POST /v2/keys/rotate": ["signingKey.rotate"],
  "GET /v2/keys/rotate": ["signingKey.rotate"],
  "DELETE /v2/workflows/runs/{workflowRunId}": ["run.cancel"],
  "DELETE /v2/workflows/runs": ["run.cancel"],
  "DELETE /v2/workflows/dlq/{dlqId}": ["dlq.delete"],
  "DELETE /v2/workflows/dlq": ["dlq.delete"],
  "POST /v2/workflows/dlq/resume/{dlqId}": ["dlq.resume"],
  "POST /v2/workflows/dlq/resume": ["dlq.resume", "dlq.resume", "dlq.resume"],
  "POST /v2/workflows/dlq/restart/{dlqId}": ["dlq.restart"],
  "POST /v2/workflows/dlq/restart": ["dlq.restart", "dlq.restart", "dlq.restart"],
  "POST /v2/workflows/dlq/callback/{dlqId}": ["dlq.callback"],
  "DELETE /v2/workflows/dlq/callback/{dlqId}": ["message.cancel"],
  "PUT /v2/alerts": ["alerts.set"],
  "DELETE /v2/alerts": ["alerts.delete"],
  "PUT /v2/admin/alerts": ["alerts.set"],
  "DELETE /v2/admin/alerts": ["alerts.delete"],
  "POST /v2/jobs": ["dlq.delete"],
  "DELETE /v2/jobs/{jobId}": ["job.stop"],
  "POST /v2/sources": ["source.create"],
  "PATCH /v2/sources/{sourceId}": ["source.change"],
  "POST /v2/sources/{sourceId}/rotate": ["source.change"],
  "DELETE /v2/sources/{sourceId}": ["source.delete"],
  // The source has no kept call, so nothing is sent.
  "POST /v2/sources/{sourceId}/rejections/send": [],
  "PUT /v2/pulled": ["pulledOrigin.set"],
  "DELETE /v2/pulled": ["pulledOrigin.remove"],
  "PUT /v2/outboxes/{name}": ["outbox.set"],
  "DELETE /v2/outboxes/{name}": ["outbox.delete"],
  ...ofAccounts("svc"),
  ...ofAccounts("qstash"),
  "POST /v2/admin/accounts": ["account.create"],
  "PATCH /v2/admin/accounts/{account}": ["account.change"],
  "POST /v2/admin/accounts/{account}/disable": ["account.disable"],
  "POST /v2/admin/accounts/{account}/enable": ["account.enable"],
  "DELETE /v2/admin/accounts/{account}": ["account.delete"],
};

test("every route that changes anything is audited or gives a reason why not", () => {
  const kept = changing.filter(({ unaudited }) => unaudited === undefined).map(nameOf);
  expect(kept.toSorted()).toEqual(Object.keys(actions).toSorted());
  expect(
    changing.flatMap(({ unaudited }) => (unaudited === undefined ? [] : [unaudited.length > 10])),
  ).not.toContain(false);
  expect(routes.filter((row) => row.unaudited !== undefined && !changesAnything(row)).map(nameOf)).toEqual([
    "GET /v2/workflows/hooks/{userId}/{workflowRunId}/{eventId}",
    "GET /v2/in/{secret}",
  ]);
});

const byOf = {
  token: { kind: "token", token: "main" },
  account: { kind: "password", name: "acc_a" },
  operator: { kind: "operator" },
};

async function owned(mark = "markofowner"): Promise<{ server: TestServer; mine: Possessions }> {
  const server = await createTestServer();
  const mine = await createPossessions(server, "acc_a", mark);
  server.memory.tables.audit.clear();
  return { server, mine };
}

describe.each(changing.map((row) => ({ row, name: nameOf(row) })))("$name", ({ row, name }) => {
  test("is audited with its author and time if it succeeds", async () => {
    const { server, mine } = await owned();
    const request = makeRequest(row, mine);
    if (name === "DELETE /v2/admin/accounts/{account}")
      await server.store.execute("changeAccount", { account: "acc_a", change: { state: "passive" } });
    if (name.endsWith("/resume")) await pauseAll(server, mine);
    if (name === "DELETE /v2/admin/alerts")
      await server.store.execute("setServerAlerts", {
        alerts: { url: mine.url, events: ["disk.low"], secret: "whsec_markofowner" },
      });
    expect(asked(name) ? (await sendRequest(server, request)).status : 200).toBeLessThan(300);
    const found = [...server.memory.tables.audit.values()];
    expect(found.filter(({ account }) => (account === "acc_a") === belongsToOthers(name))).toEqual([]);
    expect(found.map(({ what }) => what).toReversed()).toEqual(
      row.unaudited === undefined ? actions[name] : [],
    );
    const by = byOf[row.access as keyof typeof byOf];
    for (const entry of found) {
      expect(entry).toMatchObject({ time: server.clock.now, by: { ...by, address: "127.0.0.1" } });
      // An entry has no secrets and no published content.
      expect(JSON.stringify(entry)).not.toMatch(/markofowner|sig_|eyJ/);
      expect(JSON.stringify(entry)).not.toContain(mine.ids.secret);
    }
  });

  test("is not audited if it is refused", async () => {
    const { server, mine } = await owned();
    const request = makeRequest(row, mine);
    if (row.access === "source" || row.access === "hook" || row.access === "attempt") return;
    const readOnly = `Bearer ${makeReadOnlyToken({ id: "acc_a", token: mine.token })}`;
    await server.store.execute("changeAccount", { account: "acc_a", change: { state: "passive" } });
    // These requests are not refused: the operator is never disabled, and a disabled account may continue
    // runs, which is not audited, and revoke credentials.
    const own =
      row.access === "operator" || row.operation === "step" || row.forPassive
        ? []
        : [request.headers["authorization"] ?? ""];
    for (const authorization of [...own, readOnly, "Bearer wrong", formatBasic("acc_a", "wrong")])
      expect(
        (await sendRequest(server, { ...request, headers: { ...request.headers, authorization } })).status,
      ).toBeGreaterThan(400);
    expect(server.memory.tables.audit.size).toBe(0);
  });
});

/** Reports whether a route changes another account than `acc_a`, or the server as a whole. */
const belongsToOthers = (name: string): boolean =>
  name === "POST /v2/admin/accounts" || name.endsWith(" /v2/admin/alerts");

/** Pauses everything, so that it can be resumed. Calls the store without an author, so nothing is audited. */
async function pauseAll({ store }: TestServer, { ids }: Possessions): Promise<void> {
  for (const id of [`queue:${ids.queue}`, `key:${ids.key}`])
    await store.execute("pauseLimiter", { account: "acc_a", id });
  await store.execute("pauseSchedule", { account: "acc_a", id: ids.scheduleId });
}

/** Reports whether a route is called here. Calls to webhooks need a waiting step and are tested elsewhere. */
const asked = (name: string): boolean => !name.includes("/hooks/");

describe("a request that changes nothing is not audited:", () => {
  test.each([
    ["DELETE", "/v2/queues/none"],
    ["DELETE", "/v2/topics/none"],
    ["DELETE", "/v2/messages/none"],
    ["DELETE", "/v2/dlq/1800000000000-000000000"],
    ["DELETE", "/v2/schedules/none"],
    ["DELETE", "/v2/sources/none"],
    ["DELETE", "/v2/messages?dryRun=true"],
    ["DELETE", "/v2/workflows/runs/none"],
    ["POST", "/v2/queues/none/resume"],
    ["POST", "/v2/flowControl/none/unpin?rate=true"],
  ])("%s %s", async (method, url) => {
    const { server, mine } = await owned();
    await server.ask(method, url, { token: mine.token });
    expect(server.memory.tables.audit.size).toBe(0);
  });
});

test("pausing a paused queue or resuming an active one is not audited", async () => {
  const { server, mine } = await owned();
  const { queue, key, scheduleId } = mine.ids;
  const paths = [`queues/${queue}`, `flowControl/${key}`, `schedules/${scheduleId}`];
  for (const verb of ["pause", "pause", "resume", "resume"])
    for (const path of paths)
      expect((await server.ask("POST", `/v2/${path}/${verb}`, { token: mine.token })).status).toBe(200);
  expect([...server.memory.tables.audit.values()].map(({ what }) => what)).toEqual([
    "queue.pause",
    "flowControl.pause",
    "schedule.pause",
    "queue.resume",
    "flowControl.resume",
    "schedule.resume",
  ]);
});

describe("GET /v2/audit", () => {
  /** Creates seven entries, one second apart. */
  async function written() {
    const server = await createTestServer();
    for (const [method, url, body] of [
      ["POST", "/v2/queues", '{"queueName":"q","parallelism":2}'],
      ["POST", "/v2/queues/q/pause"],
      ["POST", "/v2/queues/r/pause"],
      ["DELETE", "/v2/queues/r"],
      ["POST", "/v2/keys/rotate"],
    ] as const) {
      server.clock.now += 1_000;
      // The deletion pauses the queue first, which is also audited.
      if (method === "DELETE")
        await server.store.execute("resumeLimiter", { account: "acc_1", id: "queue:r" });
      expect((await server.ask(method, url, body === undefined ? {} : { body })).status).toBe(200);
    }
    server.clock.now += 1_000;
    const headers = { authorization: formatBasic("acc_1", "pass") };
    expect(
      (
        await server.ask("PATCH", "/v2/svc/update-budget/acc_1", {
          token: null,
          headers,
          body: '{"budget":20}',
        })
      ).status,
    ).toBe(200);
    return server;
  }
  const all = [
    "account.change",
    "signingKey.rotate",
    "queue.delete",
    "queue.pause",
    "queue.pause",
    "queue.pause",
    "queue.set",
  ];
  const read = async ({ ask }: TestServer, query = "") => {
    const { status, body } = await ask("GET", `/v2/audit${query}`);
    expect(status).toBe(200);
    return { actions: body.entries.map(({ action }: { action: string }) => action), cursor: body.cursor };
  };

  test("shows author, action, address and time, newest first", async () => {
    const server = await written();
    const { status, body } = await server.ask("GET", "/v2/audit");
    expect(status).toBe(200);
    expect(body.entries.map(({ action }: { action: string }) => action)).toEqual(all);
    expect(body.entries[0]).toEqual({
      id: expect.stringMatching(/^aud_/),
      time: testTime + 6_000,
      action: "account.change",
      object: null,
      fields: ["budget"],
      by: { kind: "password", user: "acc_1", address: "127.0.0.1" },
    });
    expect(body.entries.at(-1)).toEqual({
      id: expect.stringMatching(/^aud_/),
      time: testTime + 1_000,
      action: "queue.set",
      object: "q",
      by: { kind: "token", token: "main", address: "127.0.0.1" },
    });
    expect(body.cursor).toBeUndefined();
  });

  test("names the tokens of callers, and those that were changed, also once revoked", async () => {
    const server = await createTestServer();
    const create = async (name: string) => {
      const body = JSON.stringify({ name, verbs: ["manage"] });
      return (await server.ask("POST", "/v2/tokens", { body })).body;
    };
    const named = await create("deployments");
    const unnamed = await create("");
    for (const { token } of [named, unnamed]) {
      await server.ask("POST", "/v2/queues/q/pause", { token });
      await server.ask("POST", "/v2/queues/q/resume", { token });
    }
    const readEntries = async () => (await server.ask("GET", "/v2/audit")).body.entries;
    const by = { kind: "token", token: named.tokenId, address: "127.0.0.1" };
    expect((await readEntries())[2].by).toEqual({ ...by, tokenName: "deployments" });
    expect((await readEntries())[0].by).toEqual({ ...by, token: unnamed.tokenId });
    await server.ask("DELETE", `/v2/tokens/${named.tokenId}`);
    const entries = await readEntries();
    expect(entries[0]).toMatchObject({
      ...{ action: "token.revoke", object: named.tokenId, objectName: "deployments" },
      by: { token: "main" },
    });
    expect(entries[0].by).not.toHaveProperty("tokenName");
    expect(entries[3].by).toEqual({ ...by, tokenName: "deployments" });
    expect(entries.at(-2)).not.toHaveProperty("objectName");
  });

  test.each([
    ["?action=queue", all.slice(2)],
    ["?action=queue.pause,signingKey", ["signingKey.rotate", "queue.pause", "queue.pause", "queue.pause"]],
    ["?action=queu", []],
    ["?object=q", ["queue.pause", "queue.set"]],
    ["?by=password", ["account.change"]],
    ["?by=operator,commandLine", []],
    [`?fromDate=${testTime + 4_000}`, all.slice(0, 4)],
    [`?toDate=${testTime + 2_000}`, ["queue.pause", "queue.set"]],
    [`?fromDate=${testTime + 5_000}&toDate=${testTime + 5_000}`, ["signingKey.rotate"]],
  ])("filters by %s", async (query, expected) => {
    expect((await read(await written(), query)).actions).toEqual(expected);
  });

  test("is paged, with any page size", async () => {
    const server = await written();
    for (const count of [1, 2, 3, 6, 7]) {
      const found: string[] = [];
      let cursor = "";
      do {
        const page = await read(server, `?count=${count}${cursor}`);
        expect(page.actions.length).toBeLessThanOrEqual(count);
        found.push(...page.actions);
        cursor = page.cursor === undefined ? "" : `&cursor=${page.cursor}`;
      } while (cursor !== "");
      expect(found).toEqual(all);
    }
  });

  test.each([
    ["?cursor=1", /^cursor: unknown/],
    ["?cursor=aud_%00", /^cursor: /],
    ["?fromDate=2&toDate=1", /^fromDate: is later than toDate/],
    ["?by=me", /^by: must be one of token, password, operator, commandLine, server/],
  ])("%s is refused", async (query, error) => {
    const { ask } = await createTestServer();
    expect(await ask("GET", `/v2/audit${query}`)).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(error) },
    });
  });

  test("shows nothing of another account, with any cursor", async () => {
    const server = await written();
    await server.ask("POST", "/v2/queues/mine/pause", { token: "b3RoZXI=" });
    const { body } = await server.ask("GET", "/v2/audit?count=1");
    for (const query of ["", `?cursor=${body.cursor}`, "?object=q"]) {
      const other = await server.ask("GET", `/v2/audit${query}`, { token: "b3RoZXI=" });
      expect(other.body.entries.filter(({ object }: { object: string }) => object !== "mine")).toEqual([]);
    }
  });
});
