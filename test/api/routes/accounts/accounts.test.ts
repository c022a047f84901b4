import { fc } from "../../../seeds.ts";
import { beforeEach, describe, expect, test } from "vitest";
import { routes } from "../../../../src/operations/routes.ts";
import { makeReadOnlyToken } from "../../../../src/api/auth/token.ts";
import { testTime, createTestServer, otherToken, shareTestServer, token } from "../../testServer.ts";
import type { TestServer, Reply } from "../../testServer.ts";

const brands = ["svc", "qstash"] as const;
const basic = (user: string, password: string): string =>
  `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;
const holder = basic("acc_1", "pass");

/** Returns a function that sends requests with the user name and password of an account, by default acc_1. */
const as =
  ({ ask }: TestServer) =>
  (
    method: string,
    url: string,
    { body, authorization = holder }: { body?: string; authorization?: string | null } = {},
  ): Promise<Reply> => {
    const headers: Record<string, string> = authorization === null ? {} : { authorization };
    return ask(method, url, { token: null, headers, ...(body === undefined ? {} : { body }) });
  };

const rows = routes.filter(({ access }) => access === "account");
const idOf = (path: string, id: string): string => path.replace("{id}", id);
/** Returns a valid body for each path, which names the account. */
const bodyFor = (path: string, id: string): { body?: string } => {
  if (path.endsWith("/move-to-team"))
    return {
      body: JSON.stringify({ [path.includes("/svc/") ? "svc_id" : "qstash_id"]: id, target_team_id: "team" }),
    };
  if (path.includes("/set-plan/")) return { body: '{"plan_name":"paid"}' };
  return path.includes("/update-budget/") ? { body: '{"budget":50}' } : {};
};

const shared = shareTestServer();
// So that no test is locked out for the wrong passwords of another.
beforeEach(() => void (shared().clock.now += 3_600_000));

describe.each(brands)("/v2/%s", (brand) => {
  test("reads the record of an account", async () => {
    const server = await createTestServer();
    const record = {
      customer_id: "acc_1",
      id: "acc_1",
      password: "pass",
      token,
      read_only_token: makeReadOnlyToken({ id: "acc_1", token }),
      active: true,
      state: "active",
      last_plan_upgrade_time: 0,
      max_message_size: 10 * 1024 * 1024,
      max_retries: 1000,
      timeout: 43_200,
      max_delay: 366 * 86_400,
      max_dlq_retention_time_milis: 86_400_000,
      type: "paid",
      reserved_type: "",
      reserved_price: 0,
      default_timeout: 900,
      region: "us-east-1",
      budget: 0,
      prod_pack_enabled: false,
      creation_time: testTime / 1000,
      created_by: "acc_1",
    };
    const reply = await as(server)("GET", `/v2/${brand}/user/acc_1`);
    expect(reply).toMatchObject({ status: 200, body: record, headers: { "cache-control": "no-store" } });
    expect(await as(server)("GET", `/v2/${brand}/users`)).toMatchObject({ status: 200, body: [record] });
  });

  test("rotates: the old password and tokens stop working at once, and the new ones work", async () => {
    const server = await createTestServer();
    const readOnly = makeReadOnlyToken({ id: "acc_1", token });
    for (const one of [token, readOnly])
      expect((await server.ask("GET", "/v2/keys", { token: one })).status).toBe(200);
    const { status, body } = await as(server)("POST", `/v2/${brand}/rotate-token/acc_1`);
    expect(status).toBe(200);
    expect(new Set([token, readOnly, "pass", body.token, body.read_only_token, body.password]).size).toBe(6);
    for (const one of [token, readOnly])
      expect((await server.ask("GET", "/v2/keys", { token: one })).status).toBe(401);
    for (const one of [body.token, body.read_only_token])
      expect((await server.ask("GET", "/v2/keys", { token: one })).status).toBe(200);
    expect(JSON.parse(Buffer.from(body.token, "base64").toString())).toEqual({
      UserID: "acc_1",
      Password: body.password,
    });
    expect((await as(server)("GET", `/v2/${brand}/users`)).status).toBe(401);
    expect(
      (await as(server)("GET", `/v2/${brand}/users`, { authorization: basic("acc_1", body.password) })).body,
    ).toEqual([body]);
    expect((await server.ask("GET", "/v2/keys")).status).toBe(401);
    expect((await server.ask("GET", "/v2/keys", { token: otherToken })).status).toBe(200);
  });

  test("rotates only once for concurrent requests with the old password", async () => {
    const server = await createTestServer();
    const asked = await Promise.all(
      Array.from({ length: 6 }, () => as(server)("POST", `/v2/${brand}/rotate-token/acc_1`)),
    );
    const rotated = asked.filter(({ status }) => status === 200);
    const refused = asked.filter(({ status }) => status === 401);
    expect([rotated.length, refused.map(({ body }) => body.code)]).toEqual([
      1,
      Array.from({ length: 5 }, () => "unauthorized"),
    ]);
    for (const { body } of rotated) {
      expect(
        (await as(server)("GET", `/v2/${brand}/users`, { authorization: basic("acc_1", body.password) }))
          .body,
      ).toEqual([body]);
      expect((await server.ask("GET", "/v2/keys", { token: body.token })).status).toBe(200);
    }
  });

  test("sets plan, budget, production pack and team", async () => {
    const server = await createTestServer();
    const record = async () => (await as(server)("GET", `/v2/${brand}/user/acc_1`)).body;
    const change = (method: string, path: string, body?: string) =>
      as(server)(method, `/v2/${brand}/${path}`, body === undefined ? {} : { body });
    server.clock.now += 5_000;
    for (const [written, shown, retries] of [
      ["paid", "paid", 999],
      [`${brand}_fixed_1m`, `${brand}_fixed_1m`, 999],
      ["svc_fixed_100m", `${brand}_fixed_100m`, 999],
    ] as const) {
      expect(await change("POST", "set-plan/acc_1", JSON.stringify({ plan_name: written }))).toMatchObject({
        status: 200,
        body: "OK",
      });
      expect(await record()).toMatchObject({ reserved_type: shown, max_retries: retries });
    }
    expect(await record()).toMatchObject({ last_plan_upgrade_time: testTime / 1000 + 5 });
    expect(await change("PATCH", "update-budget/acc_1", '{"budget":20}')).toMatchObject({
      status: 200,
      body: "OK",
    });
    expect(await change("POST", "enable-prodpack/acc_1")).toMatchObject({ status: 200, body: "OK" });
    const team = JSON.stringify({ [`${brand}_id`]: "acc_1", target_team_id: "team_7" });
    expect(await change("POST", "move-to-team", team)).toMatchObject({ status: 200, body: "OK" });
    expect(await record()).toMatchObject({
      budget: 20,
      prod_pack_enabled: true,
      customer_id: "team_7",
      created_by: "acc_1",
    });
    await change("POST", "disable-prodpack/acc_1");
    await change("PATCH", "update-budget/acc_1", '{"budget":0}');
    expect(await record()).toMatchObject({ budget: 0, prod_pack_enabled: false });
  });

  test.for<[method: string, path: string, body: string | undefined, said: RegExp]>([
    ["POST", "set-plan/acc_1", '{"plan_name":"free"}', /^plan_name: must be one of paid, svc_fixed_1m/],
    ["POST", "set-plan/acc_1", '{"plan_name":"fixed_1m2"}', /^plan_name/],
    ["POST", "set-plan/acc_1", '{"plan_name":"svc_paid"}', /^plan_name/],
    ["POST", "set-plan/acc_1", '{"plan_name":"selfHosted"}', /^plan_name/],
    ["POST", "set-plan/acc_1", '{"plan_name":1}', /^plan_name: is missing or not a string/],
    ["POST", "set-plan/acc_1", "{}", /^plan_name: is missing/],
    ["POST", "set-plan/acc_1", '{"plan_name":"paid","x":1}', /^x: unknown field/],
    ["POST", "set-plan/acc_1", undefined, /^body: missing/],
    ["PATCH", "update-budget/acc_1", '{"budget":19}', /^budget: must be 0, or 20/],
    ["PATCH", "update-budget/acc_1", '{"budget":10001}', /^budget: must be 0, or 20/],
    ["PATCH", "update-budget/acc_1", '{"budget":-20}', /^budget: must be 0, or 20/],
    ["PATCH", "update-budget/acc_1", '{"budget":20.5}', /^budget: is missing or not a whole number/],
    ["POST", "move-to-team", '{"target_team_id":"t"}', /^(svc|qstash)_id: is missing/],
    ["GET", "user/acc_1?surprise=1", undefined, /^surprise/],
  ])("refuses %s %s %s", async ([method, path, body, said]) => {
    const reply = await as(shared())(method, `/v2/${brand}/${path}`, body === undefined ? {} : { body });
    expect(reply).toMatchObject({
      status: 400,
      body: { code: "bad-request", message: expect.stringMatching(said), errorCode: "invalid" },
    });
  });

  test("lists the networks of deliveries without credentials", async () => {
    const server = await createTestServer({ sendsFrom: ["203.0.113.7/32"] });
    expect(await as(server)("GET", `/v2/${brand}/ipv4`, { authorization: null })).toMatchObject({
      status: 200,
      body: ["203.0.113.7/32"],
    });
  });

  test("reports an unknown path in the error format of accounts", async () => {
    expect(await as(shared())("GET", `/v2/${brand}/nothing`)).toMatchObject({
      status: 404,
      body: { code: "not-found", errorCode: "not-found" },
    });
  });
});

test("an account cannot change a plan set by the operator, and a new plan keeps its own limits", async () => {
  const server = await createTestServer();
  await server.store.execute("changeAccount", {
    account: "acc_1",
    change: { plan: "free", isPlanHeld: true },
  });
  const reply = await as(server)("POST", "/v2/svc/set-plan/acc_1", { body: '{"plan_name":"paid"}' });
  expect(reply).toMatchObject({
    status: 403,
    body: { code: "forbidden", message: expect.stringContaining("the operator has set the plan") },
  });
  await server.store.execute("changeAccount", { account: "acc_2", change: { limits: { retries: 1 } } });
  const other = { authorization: basic("acc_2", "pass") };
  await as(server)("POST", "/v2/svc/set-plan/acc_2", { ...other, body: '{"plan_name":"paid"}' });
  expect((await as(server)("GET", "/v2/svc/user/acc_2", other)).body).toMatchObject({
    reserved_type: "paid",
    max_retries: 1,
  });
});

describe.each(rows.map((row) => ({ name: `${row.method} ${row.path}`, row })))(
  "$name",
  ({ row: { method, path, takesTokens } }) => {
    test.each<[string, string | null]>([
      ["nothing", null],
      // Tokens that may read are tested with GET /v2/me.
      ...(takesTokens ? [] : [["a token", `Bearer ${token}`] as [string, string]]),
      ["a wrong password", basic("acc_1", "wrong")],
      ["no password", basic("acc_1", "")],
      ["a password without a name", basic("", "pass")],
      ["an unknown name", basic("unknown", "pass")],
      ["the token as password", basic("acc_1", token)],
      ["a scheme without credentials", "Basic"],
      ["invalid base64", "Basic %%%"],
      ["no colon", `Basic ${Buffer.from("acc_1").toString("base64")}`],
      ["a NUL character", basic("acc_1\0", "pass")],
    ])("is 401 with %s", async (_, authorization) => {
      const reply = await as(shared())(method, idOf(path, "acc_1"), {
        authorization,
        ...bodyFor(path, "acc_1"),
      });
      expect(reply).toMatchObject({
        status: 401,
        headers: { "www-authenticate": expect.stringMatching(/^Basic realm=/) },
        body: { code: "unauthorized", message: expect.stringMatching(/^account: /) },
      });
    });

    test("treats another account like an unknown one", async () => {
      const server = shared();
      const [others, unknown] = await Promise.all(
        ["acc_2", "acc_9"].map((id) => as(server)(method, idOf(path, id), bodyFor(path, id))),
      );
      if (path.endsWith("/users"))
        return expect(others).toMatchObject({ status: 200, body: [{ id: "acc_1" }] });
      expect(others).toMatchObject({
        status: 404,
        body: { code: "not-found", message: 'id: there is no account "acc_2"' },
      });
      expect(unknown).toMatchObject({
        status: 404,
        body: { code: "not-found", message: 'id: there is no account "acc_9"' },
      });
    });

    test("is closed for a disabled account if it changes anything but its credentials", async () => {
      const server = await createTestServer();
      await server.store.execute("changeAccount", { account: "acc_1", change: { state: "passive" } });
      const reply = await as(server)(method, idOf(path, "acc_1"), bodyFor(path, "acc_1"));
      if (path.includes("/rotate-token/"))
        expect(reply).toMatchObject({ status: 200, body: { state: "passive" } });
      else if (method !== "GET") expect(reply).toMatchObject({ status: 403, body: { code: "forbidden" } });
      else if (path.includes("/stats/")) expect(reply.status).toBe(200);
      else expect([reply.body].flat()).toMatchObject([{ active: false, state: "passive" }]);
    });
  },
);

describe("the user name of an account", () => {
  test("is its id or its name; ids have priority, and the password decides between equal names", async () => {
    const server = await createTestServer();
    const make = (id: string, name: string, password: string) =>
      server.store.execute("createAccount", {
        id,
        name,
        password,
        token: id,
        tokenHash: id,
        signingKeys: { current: "a", next: "b" },
      });
    await make("acc_3", "twin", "three");
    await make("acc_4", "twin", "four");
    await make("acc_5", "acc_1", "five");
    const idFor = async (user: string, password: string) =>
      (await as(server)("GET", "/v2/svc/users", { authorization: basic(user, password) })).body[0]?.id ?? 401;
    expect(await idFor("twin", "three")).toBe("acc_3");
    expect(await idFor("twin", "four")).toBe("acc_4");
    expect(await idFor("acc_1", "pass")).toBe("acc_1");
    expect(await idFor("acc_1", "five")).toBe(401);
    await make("acc_6", "later", "a:b:ü");
    expect(await idFor("later", "a:b:ü")).toBe("acc_6");
  });
});

test("one account neither reads nor changes anything of another, in any order of requests", async () => {
  const ids = fc.constantFrom(
    "acc_1",
    "acc_2",
    "acc_9",
    "ACC_1",
    "acc_1%20",
    "%61cc_2",
    "..",
    "acc_2/",
    "acc_1,acc_2",
    "*",
  );
  const step = fc.record({ row: fc.constantFrom(...rows), who: fc.constantFrom("acc_1", "acc_2"), id: ids });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 12 }), async (steps) => {
      const server = await createTestServer();
      const passwords: Record<string, string> = { acc_1: "pass", acc_2: "pass" };
      for (const { row, who, id } of steps) {
        const other = who === "acc_1" ? "acc_2" : "acc_1";
        const before = await server.store.read.account(other);
        const authorization = basic(who, passwords[who] ?? "");
        const reply = await as(server)(row.method, idOf(row.path, id), {
          authorization,
          ...bodyFor(row.path, id),
        });
        expect(await server.store.read.account(other)).toEqual(before);
        const shown = JSON.stringify(reply.body);
        for (const secret of [before?.token ?? "?", makeReadOnlyToken(before ?? { id: "", token: "" })])
          expect(shown).not.toContain(secret);
        expect([200, 400, 403, 404]).toContain(reply.status);
        if (row.path.includes("rotate-token") && reply.status === 200) passwords[who] = reply.body.password;
      }
    }),
    { numRuns: 60 },
  );
});
