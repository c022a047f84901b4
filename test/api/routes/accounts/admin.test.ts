import { describe, expect, test } from "vitest";
import { routes } from "../../../../src/operations/routes.ts";
import { readConfig } from "../../../../src/settings/config.ts";
import { createTestServer, operatorPassword, testTime, token } from "../../testServer.ts";
import type { TestServer, Reply } from "../../testServer.ts";
import { formatBasic } from "./possessions.ts";
import { startInvoked } from "../workflows/runLogFixtures.ts";
import { start } from "../workflows/workflow.ts";

const operator = formatBasic("operator", operatorPassword);
const all = "/v2/admin/accounts";

/** Returns a function that sends requests with a Basic header, by default the operator's. */
const as =
  ({ ask }: TestServer, authorization = operator) =>
  (method: string, url: string, body?: unknown): Promise<Reply> =>
    ask(method, url, {
      token: null,
      headers: { authorization },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });

const rows = routes
  .filter(({ access }) => access === "operator")
  .map(({ method, path }) => ({ method, path, url: path.replace("{account}", "acc_1") }));

describe.each(rows)("$method $path", ({ method, url }) => {
  test.each([
    ["no credentials", undefined],
    ["the token of an account", `Bearer ${token}`],
    ["the password of an account", formatBasic("acc_1", "pass")],
    ["another name", formatBasic("root", operatorPassword)],
    ["no name", formatBasic("", operatorPassword)],
    ["a wrong password", formatBasic("operator", `${operatorPassword}x`)],
    ["the beginning of the password", formatBasic("operator", operatorPassword.slice(0, -1))],
    ["no password", formatBasic("operator", "")],
  ])("is closed for %s", async (_, authorization) => {
    const server = await createTestServer();
    const before = JSON.stringify([...server.memory.tables.accounts.values()]);
    const reply = await server.ask(method, url, {
      token: null,
      headers: authorization === undefined ? {} : { authorization },
    });
    expect(reply).toMatchObject({
      status: 401,
      headers: { "www-authenticate": expect.stringMatching(/^Basic/) },
      body: { code: "unauthorized", message: expect.stringMatching(/^operator: /) },
    });
    expect(JSON.stringify([...server.memory.tables.accounts.values()])).toBe(before);
    expect(JSON.stringify([reply.body, server.lines])).not.toContain(operatorPassword);
  });

  test("explains how to turn it on if it is off", async () => {
    const server = await createTestServer({ hasOperator: false });
    for (const authorization of [operator, formatBasic("operator", "")])
      expect(await as(server, authorization)(method, url)).toMatchObject({
        status: 403,
        body: { message: expect.stringMatching(/turned off.*WAYPOST_OPERATOR_PASSWORD.*16 characters/) },
      });
  });
});

test("an account can be created, limited, disabled, enabled and deleted; its credentials work", async () => {
  const server = await createTestServer();
  const made = await as(server)("POST", all, {
    name: "the shop",
    plan: "free",
    limits: { retries: 5, delay: "1d" },
  });
  expect(made).toMatchObject({
    status: 200,
    headers: { "cache-control": "no-store" },
    body: {
      name: "the shop",
      state: "active",
      plan: "free",
      createdAt: server.clock.now,
      ownLimits: ["retries", "delay"],
    },
  });
  const { id, limits, token: its, password, readOnlyToken, signingKeys } = made.body;
  expect(limits).toMatchObject({ retries: 5, delay: 86_400_000, queues: 10 });
  const publish = () =>
    server.ask("POST", "/v2/publish/https://e.example", { token: its, headers: { "svc-delay": "1h" } });
  expect((await publish()).status).toBe(200);
  expect((await server.ask("GET", "/v2/keys", { token: readOnlyToken })).body).toEqual(signingKeys);
  expect((await as(server, formatBasic("the shop", password))("GET", `/v2/svc/user/${id}`)).status).toBe(200);

  const shown = { ...made.body };
  for (const secret of ["token", "readOnlyToken", "password", "signingKeys"])
    Reflect.deleteProperty(shown, secret);
  for (const named of [id, "the%20shop"])
    expect((await as(server)("GET", `${all}/${named}`)).body).toEqual({
      ...shown,
      storedBytes: expect.any(Number),
    });
  const limited = await as(server)("PATCH", `${all}/${id}`, {
    limits: { retries: null, queues: 3, delay: 60 },
  });
  expect(limited.body).toMatchObject({
    plan: "free",
    ownLimits: ["delay", "queues"],
    limits: { retries: 999, queues: 3, delay: 60_000 },
  });
  expect((await publish()).status).toBe(412);
  expect((await as(server)("PATCH", `${all}/${id}`, { plan: "paid" })).body).toMatchObject({
    plan: "paid",
    limits: { queues: 3 },
  });
  const asHolder = as(server, formatBasic(id, password));
  const held = await asHolder("POST", `/v2/svc/set-plan/${id}`, { plan_name: "paid" });
  expect(held.status, "only the operator can change a plan that the operator has set").toBe(403);

  expect(await as(server)("DELETE", `${all}/${id}`)).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining("disable") },
  });
  expect((await as(server)("POST", `${all}/${id}/disable`)).body).toMatchObject({ state: "passive" });
  expect((await publish()).status).toBe(403);
  expect((await as(server)("POST", `${all}/the%20shop/enable`)).body).toMatchObject({ state: "active" });
  await as(server)("POST", `${all}/${id}/disable`);
  expect(await as(server)("DELETE", `${all}/${id}`)).toMatchObject({ status: 200, body: { deleted: id } });
  expect((await publish()).status).toBe(401);
  for (const [method, path] of [
    ["GET", ""],
    ["DELETE", ""],
    ["POST", "/enable"],
  ] as const)
    expect((await as(server)(method, `${all}/${id}${path}`)).status).toBe(404);
  expect((await as(server)("GET", all)).body.accounts.map((account: { id: string }) => account.id)).toEqual([
    "acc_1",
    "acc_2",
  ]);
  const audit = [...server.memory.tables.audit.values()].map(({ account, what, by }) => [
    account === id,
    what,
    by.kind,
  ]);
  expect(audit.filter(([, , kind]) => kind === "operator")).toEqual(
    ["create", "change", "change", "disable", "enable", "disable", "delete"].map((verb) => [
      true,
      `account.${verb}`,
      "operator",
    ]),
  );
});

test("the price of a plan is the account's, or else the server's for the plan, or else 0", async () => {
  const server = await createTestServer({
    reservedPrices: { fixed_1m: 180, paid: 0.5 },
    region: "EU-CENTRAL-1",
  });
  const readPrice = async () => {
    const { body } = await as(server, formatBasic("acc_1", "pass"))("GET", "/v2/svc/user/acc_1");
    return [body.reserved_price, body.region];
  };
  expect(await readPrice()).toEqual([0, "eu-central-1"]);
  expect((await as(server)("PATCH", `${all}/acc_1`, { plan: "paid" })).body).toMatchObject({
    reservedPrice: null,
  });
  expect(await readPrice()).toEqual([0.5, "eu-central-1"]);
  expect((await as(server)("PATCH", `${all}/acc_1`, { reservedPrice: 9.99 })).body).toMatchObject({
    reservedPrice: 9.99,
  });
  expect(await readPrice()).toEqual([9.99, "eu-central-1"]);
  await as(server)("PATCH", `${all}/acc_1`, { plan: "fixed_1m", reservedPrice: 0 });
  expect(await readPrice()).toEqual([0, "eu-central-1"]);
  await as(server)("PATCH", `${all}/acc_1`, { reservedPrice: null });
  expect(await readPrice()).toEqual([180, "eu-central-1"]);
});

test("an account shows the timeout of a message that sets none, with and without its own limit", async () => {
  const server = await createTestServer();
  expect((await as(server)("GET", `${all}/acc_1`)).body).toMatchObject({
    defaultTimeout: 900_000,
    limits: { timeout: 43_200_000 },
  });
  const limited = await as(server)("PATCH", `${all}/acc_1`, { limits: { timeout: 60 } });
  expect(limited.body).toMatchObject({ defaultTimeout: 60_000, limits: { timeout: 60_000 } });
  const record = (await as(server, formatBasic("acc_1", "pass"))("GET", "/v2/svc/user/acc_1")).body;
  expect(record).toMatchObject({ timeout: 60, default_timeout: 60 });
  await server.ask("POST", "/v2/publish/https://e.example/");
  expect(server.delivery().message.timeout).toBe(60_000);
});

test("concurrent changes of an account's limits do not overwrite each other", async () => {
  let reading = 0;
  let bothHaveRead = (): void => undefined;
  const both = new Promise<void>((resolve) => (bothHaveRead = resolve));
  const server = await createTestServer({
    wrap: (store) => ({
      ...store,
      read: {
        ...store.read,
        accounts: async () => {
          const accounts = await store.read.accounts();
          if (++reading === 2) bothHaveRead();
          await both;
          return accounts;
        },
      },
    }),
  });
  await server.store.execute("changeAccount", {
    account: "acc_1",
    change: { limits: { retries: 1, delay: 1_000 } },
  });
  const [one, other] = await Promise.all([
    as(server)("PATCH", `${all}/acc_1`, { limits: { retries: 5, queues: 3 } }),
    as(server)("PATCH", `${all}/acc_1`, { limits: { delay: null, groups: 2 } }),
  ]);
  expect([one.status, other.status]).toEqual([200, 200]);
  expect((await server.store.read.account("acc_1"))?.limits).toEqual({ retries: 5, queues: 3, groups: 2 });
});

test("an account can be created with its own limits for some, and the plan's for others", async () => {
  const server = await createTestServer();
  const { body } = await as(server)("POST", all, {
    name: "the shop",
    plan: "free",
    limits: { retries: null, queues: 3 },
  });
  expect(body).toMatchObject({ ownLimits: ["queues"], limits: { retries: 999, queues: 3 } });
  expect((await server.store.read.account(body.id))?.limits).toEqual({ queues: 3 });
});

test("the audit log names only the changed fields of an account", async () => {
  const server = await createTestServer();
  const fieldsAfter = async (change: object): Promise<unknown> => {
    expect((await as(server)("PATCH", `${all}/acc_1`, change)).status).toBe(200);
    return (await server.ask("GET", "/v2/audit?count=1")).body.entries[0].fields;
  };
  expect(await fieldsAfter({ limits: { retries: 5, queues: null } })).toEqual([
    "limits.retries",
    "limits.queues",
  ]);
  expect(await fieldsAfter({ standardWebhooks: true })).toEqual(["signsStandard"]);
  expect(await fieldsAfter({ plan: "paid" })).toEqual(["plan", "isPlanHeld"]);
  expect((await as(server)("GET", `${all}/acc_1`)).body).toMatchObject({
    ownLimits: ["retries"],
    limits: { retries: 5 },
  });
});

test("an account is deleted together with a run that is invoked during the deletion", async () => {
  let reads = 0;
  const server: TestServer = await createTestServer({
    wrap: (store) => ({
      ...store,
      read: {
        ...store.read,
        runs: async (query) => {
          const page = await store.read.runs(query);
          if (++reads === 1)
            await startInvoked(server, "child", {
              step: { stepId: 1, stepName: "i", stepType: "Invoke", concurrent: 1 },
            });
          return page;
        },
      },
    }),
  });
  await start(server, "parent");
  await as(server)("POST", `${all}/acc_1/disable`);
  expect((await as(server)("DELETE", `${all}/acc_1`)).status).toBe(200);
  expect([...server.memory.tables.runs.values()].map(({ runId, state }) => [runId, state])).toEqual([
    ["parent", "RUN_CANCELED"],
    ["child", "RUN_CANCELED"],
  ]);
  expect(server.memory.tables.activeRuns.size).toBe(0);
});

test("the list is paged", async () => {
  const server = await createTestServer();
  for (let n = 0; n < 5; n++)
    expect((await as(server)("POST", all, { name: `account ${n}` })).status).toBe(200);
  const whole = (await as(server)("GET", all)).body;
  expect(whole.accounts).toHaveLength(7);
  expect(whole.cursor).toBeUndefined();
  for (const count of [1, 3, 7]) {
    const found: unknown[] = [];
    let cursor = "";
    do {
      const { body } = await as(server)("GET", `${all}?count=${count}${cursor}`);
      found.push(...body.accounts);
      cursor = body.cursor === undefined ? "" : `&cursor=${body.cursor}`;
    } while (cursor !== "");
    expect(found).toEqual(whole.accounts);
  }
  expect(JSON.stringify(whole)).not.toMatch(/eyJ|sig_|"pass"/);
});

test.each([
  [{ name: "acc_1" }, 409, /an account with this name exists/],
  [{ name: "a:b" }, 400, /^name: invalid; use 1 to 100 characters/],
  [{ name: "x".repeat(101) }, 400, /^name: /],
  [{}, 400, /^name: is missing/],
  [{ name: "n", plan: "gold" }, 400, /^plan: gold is not a plan; use free, /],
  [{ name: "n", limits: { retries: "many" } }, 400, /^limits\.retries: many is invalid; use a whole number/],
  [{ name: "n", limits: { retries: -1 } }, 400, /^limits\.retries: /],
  [{ name: "n", limits: { delay: "soon" } }, 400, /^limits\.delay: soon is invalid; use a duration/],
  [{ name: "n", limits: { retries: true } }, 400, /^limits\.retries: is neither a number, nor null/],
  [{ name: "n", limits: { logRows: 1 } }, 400, /logRows: unknown field/],
  [{ name: "n", limits: null }, 400, /^limits: is not an object$/],
  [
    { name: "n", limits: { logRetention: 0 } },
    400,
    /^limits\.logRetention: 0 is too short; use 60s or more$/,
  ],
  [{ name: "n", reservedPrice: -1 }, 400, /^reservedPrice: -1 is not an amount in dollars/],
  [{ name: "n", reservedPrice: 1_000_001 }, 400, /^reservedPrice: 1000001 is not an amount in dollars/],
  [{ name: "n", reservedPrice: "9" }, 400, /^reservedPrice: is neither a number of dollars, nor null/],
  [{ name: "n", state: "passive" }, 400, /^state: unknown field/],
])("%o is refused", async (body, status, message) => {
  const server = await createTestServer();
  expect(await as(server)("POST", all, body)).toMatchObject({
    status,
    body: { message: expect.stringMatching(message) },
  });
  expect(server.memory.tables.accounts.size).toBe(2);
});

test("the account port serves only the account endpoints and those without credentials", async () => {
  const server = await createTestServer({ servesAccountsOnly: true });
  expect((await as(server)("GET", all)).status).toBe(200);
  expect((await as(server, formatBasic("acc_1", "pass"))("GET", "/v2/svc/users")).status).toBe(200);
  expect((await server.ask("GET", "/v2/health", { token: null })).status).toBe(200);
  for (const row of routes.filter(({ access }) => !["account", "operator", "open"].includes(access))) {
    const url = row.path.replace("{destination}", "https://e.example").replaceAll(/\{\w+\}/g, "x");
    // The refused requests of one second are limited.
    server.clock.now += 1_000;
    expect((await server.ask(row.method, url)).status, `${row.method} ${url}`).toBe(404);
    // Refused requests are limited per second.
    server.clock.now += 100;
  }
});

test("a hold of all deliveries can be ended", async () => {
  const server = await createTestServer();
  await server.store.hold.set(true);
  const unhold = () => as(server)("POST", "/v2/admin/unhold");
  expect(await unhold()).toMatchObject({ status: 200, body: { wasHeld: true } });
  expect(await server.store.hold.isOnHold()).toBe(false);
  expect(await unhold()).toMatchObject({ status: 200, body: { wasHeld: false } });
});

test("the settings of outgoing connections are shown without the password of the proxy", async () => {
  const proxy = "http://user:proxy-password@proxy.example:3128";
  const server = await createTestServer({
    egress: readConfig({}, { WAYPOST_EGRESS_ALLOW: "10.0.0.0/8,app", WAYPOST_EGRESS_PROXY: proxy }),
  });
  const reply = await as(server)("GET", "/v2/admin/egress");
  expect(reply).toMatchObject({
    status: 200,
    body: {
      egressAllow: ["10.0.0.0/8", "app"],
      egressProxy: "proxy.example:3128",
      egressCa: "",
      egressClientCertificates: "",
      connectTimeout: 10_000,
    },
  });
  const text = JSON.stringify(reply);
  expect(text).not.toContain("proxy-password");
  expect(text).not.toContain(btoa("user:proxy-password"));
});

test("the nodes are this one, if the store belongs to it alone", async () => {
  const server = await createTestServer();
  expect(await as(server)("GET", "/v2/admin/nodes")).toMatchObject({
    status: 200,
    body: {
      nodes: [{ id: "nod_1", state: "running", isThis: true, version: "1.2.3", startedAt: testTime }],
    },
  });
});

test("the nodes of a shared store have their states and their last changes", async () => {
  const node = { version: "", startedAt: 5, isAlive: false };
  const server = await createTestServer({
    wrap: (store) => ({
      ...store,
      upkeep: {
        ...store.upkeep,
        nodes: async () => [
          { ...node, id: "nod_2", changedAt: 9, membership: 4 },
          { ...node, id: "nod_1", changedAt: null, membership: 1 },
        ],
      },
    }),
  });
  expect((await as(server)("GET", "/v2/admin/nodes")).body).toEqual({
    nodes: [
      { id: "nod_2", state: "lost", startedAt: 5, changedAt: 9 },
      { id: "nod_1", state: "running", isThis: true, startedAt: 5 },
    ],
  });
});
