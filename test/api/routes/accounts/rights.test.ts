import { describe, expect, test } from "vitest";
import { changesAnything, requiredVerb } from "../../../../src/api/route/route.ts";
import { routes } from "../../../../src/operations/routes.ts";
import { makeReadOnlyToken } from "../../../../src/api/auth/token.ts";
import { makeToken } from "../../../../src/engine/core/values/tokenText.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import type { TestServer } from "../../testServer.ts";
import { createTestServer, token } from "../../testServer.ts";
import { codeFields } from "../../errorFields.ts";

const urlOf = (path: string): string =>
  path
    .replace("{destination}", "https://e.example/x")
    .replace("{call}", "msg_1.0.c1")
    .replace(/\{\w+\}/g, "1800000000000-0");
const guarded = routes
  .filter(({ access }) => access === "token")
  .map((row) => ({
    name: `${row.method} ${row.path}`,
    method: row.method,
    url: urlOf(row.path),
    changes: changesAnything(row),
    verb: requiredVerb(row),
    looks: row.looksAtScope ?? false,
    isForSteps: row.operation === "step",
    forPassive: row.forPassive ?? false,
  }));
/** The headers and bodies that requests need to be accepted. */
const bodies: Readonly<Record<string, { body?: string; headers?: Record<string, string> }>> = {
  "POST /v2/batch": { body: '[{"destination":"https://e.example/x"}]' },
  "POST /v2/batch/trigger": { body: '[{"destination":"https://e.example/x"}]' },
  "POST /v2/schedules/https://e.example/x": { headers: { "svc-cron": "0 0 1 1 *" } },
  "POST /v2/workflows/runs/1800000000000-0/run-on/msg_1.0.c1": {
    body: '{"stepId":1,"stepName":"s","stepType":"Run"}',
  },
};

/** Creates a token with these rights. */
async function tokenWith(
  ask: TestServer["ask"],
  rights: { verbs: string[]; destinations?: string[] },
): Promise<string> {
  const { status, body } = await ask("POST", "/v2/tokens", { body: JSON.stringify(rights) });
  expect({ status, body }).toMatchObject({ status: 201 });
  return body.token;
}

const reading = makeReadOnlyToken({ id: "acc_1", token });

/** A request for an unknown object, or a malformed one, has also passed the check of rights. */
const passed = [200, 201, 400, 404];
/** The requests that always need a second verb. */
const alsoNeeded: Readonly<Record<string, string>> = {
  "POST /v2/dlq/1800000000000-0/replay": "read",
};
const allVerbs = ["publish", "read", "manage", "receive"] as const;

/** A link must not rotate the keys, so this route reads the token from the header alone. */
const readsQueryToken = (method: string, url: string): boolean =>
  !(method === "GET" && url === "/v2/keys/rotate");

describe.each(guarded)("$name", ({ method, url, changes, verb, looks, isForSteps, forPassive }) => {
  test.each(allVerbs)("is open for a token with the verb %s only if it needs that verb", async (may) => {
    const { ask } = await createTestServer();
    const scoped = await tokenWith(ask, { verbs: [may] });
    const { status, body } = await ask(method, url, { token: scoped });
    const missing = may === verb ? alsoNeeded[`${method} ${url}`] : verb;
    if (missing === undefined) expect(passed).toContain(status);
    else
      expect({ status, body }).toEqual({
        status: 403,
        body: {
          error: expect.stringMatching(`requires '${missing}'.*; this token has only '${may}'`),
          ...codeFields("forbidden"),
        },
      });
    // A second rotation of the keys must be forced.
    const force = url === "/v2/keys/rotate" ? "&force=true" : "";
    expect(
      (await ask(method, `${url}?svc_token=${encodeURIComponent(scoped)}${force}`, { token: null })).status,
    ).toBe(readsQueryToken(method, url) ? status : 401);
  });

  test("does not publish with a token that is bound to other destinations", async () => {
    const { ask, deliveries } = await createTestServer();
    const scoped = await tokenWith(ask, {
      verbs: ["publish", "read"],
      destinations: ["https://other.example/*"],
    });
    const more = bodies[`${method} ${url}`] ?? {};
    const { status, body } = await ask(method, url, { token: scoped, ...more });
    if (verb === "read") expect(passed).toContain(status);
    // Nothing is sent for a run that does not exist. `runOn.test.ts` has a run of another destination.
    else if (url.includes("/run-on/"))
      expect({ status, body }).toEqual({ status: 200, body: { runOn: false } });
    else
      expect({ status, body }).toEqual({
        status: 403,
        body: {
          error: expect.stringContaining(
            verb === "publish" ? "only to https://other.example/*" : `requires '${verb}'`,
          ),
          ...codeFields("forbidden"),
        },
      });
    if (verb === "publish" && looks) {
      const good = await tokenWith(ask, { verbs: ["publish"], destinations: ["https://e.example/*"] });
      expect([200, 201]).toContain((await ask(method, url, { token: good, ...more })).status);
    }
    expect(deliveries.filter(({ message }) => !message.url.startsWith("https://e.example/"))).toEqual([]);
  });

  test("is open for a read-only token only if it changes nothing", async () => {
    const { ask } = await createTestServer();
    const { status, body } = await ask(method, url, { token: reading });
    if (verb !== "read")
      expect({ status, body }).toEqual({
        status: 403,
        body: { error: expect.stringMatching(/^token: read-only/), ...codeFields("forbidden") },
      });
    else expect([200, 400, 404]).toContain(status);
    expect(
      (await ask(method, `${url}?svc_token=${encodeURIComponent(reading)}`, { token: null })).status,
    ).toBe(readsQueryToken(method, url) ? status : 401);
  });

  test("is open for a disabled account only if it changes nothing or revokes credentials", async () => {
    const { ask, store } = await createTestServer();
    await ask("GET", "/v2/keys");
    await store.execute("changeAccount", { account: "acc_1", change: { state: "passive" } });
    const { status, body } = await ask(method, url, bodies[`${method} ${url}`] ?? {});
    // A stream ends when its account is disabled, so none begins.
    const isStream = url === "/v2/logs/tail";
    if (isStream || (changes && !forPassive && !(isForSteps && /wait|notify|run-on/.test(url))))
      expect({ status, body }).toEqual({
        status: 403,
        body: { error: expect.stringContaining("waypost account enable acc_1"), ...codeFields("forbidden") },
      });
    else expect([200, 400, 404]).toContain(status);
  });
});

test("the needed verb follows from whether a route changes anything, except for publishing", () => {
  const others = guarded.filter(({ verb, changes }) => verb !== (changes ? "manage" : "read"));
  expect(others.map(({ name, verb }) => `${verb} ${name}`)).toEqual([
    "publish POST /v2/publish/{destination}",
    "publish POST /v2/enqueue/{queue}/{destination}",
    "publish POST /v2/batch",
    "receive POST /v2/attempts/batch",
    "receive POST /v2/pull",
    "publish POST /v2/schedules/{destination}",
    "publish POST /v2/trigger/{destination}",
    "publish POST /v2/batch/trigger",
    "publish POST /v2/workflows/runs/{workflowRunId}/run-on/{call}",
    "publish POST /v2/wait/{eventId}",
    "publish POST /v2/notify/{eventId}",
    "publish POST /v2/notify/{workflowRunId}/{eventId}",
  ]);
});

test("routes that change nothing need the verb read, and only one route checks the verb itself", () => {
  expect(guarded.filter(({ verb, changes }) => !changes && verb !== "read")).toEqual([]);
  const looking = routes
    .filter(({ looksAtVerb }) => looksAtVerb)
    .map(({ method, path }) => `${method} ${path}`);
  expect(looking).toEqual(["DELETE /v2/workflows/runs/{workflowRunId}"]);
});

test("only routes known to change nothing need the verb read", () => {
  expect(
    guarded.filter(({ changes, method }) => changes !== (method !== "GET")).map(({ name }) => name),
  ).toEqual(["GET /v2/keys/rotate"]);
});

describe("a read-only token", () => {
  test.each([
    ["of another account", makeToken("acc_2", "pass")],
    ["of an unknown account", makeReadOnlyToken({ id: "unknown", token })],
    ["derived from another token", makeReadOnlyToken({ id: "acc_1", token: "another" })],
    ["with nothing in it", Buffer.from("{}").toString("base64")],
    ["with a list in it", Buffer.from("[1]").toString("base64")],
    ["with another id", Buffer.from('{"UserID":{"a":1}}').toString("base64")],
    ["that is very long", makeToken("acc_1", "x".repeat(10_000))],
  ])("%s is not accepted", async (_, wrong) => {
    const { ask } = await createTestServer();
    expect(await ask("GET", "/v2/keys", { token: wrong })).toMatchObject({
      status: 401,
      body: { error: expect.stringMatching(/^token: not valid/) },
    });
  });

  test("stops working with the token that it is derived from", async () => {
    const { ask, store } = await createTestServer();
    expect((await ask("GET", "/v2/keys", { token: reading })).status).toBe(200);
    await store.execute("rotateToken", { account: "acc_1", password: "p", token: "new", tokenHash: "hash" });
    expect((await ask("GET", "/v2/keys", { token: reading })).status).toBe(401);
    expect((await ask("GET", "/v2/keys", { token })).status).toBe(401);
    expect(
      (await ask("GET", "/v2/keys", { token: makeReadOnlyToken({ id: "acc_1", token: "new" }) })).status,
    ).toBe(200);
  });

  test("needs one more read than the main token, and none when it is cached", async () => {
    const asked: string[] = [];
    const counted = (store: Store): Store => ({
      ...store,
      read: new Proxy(store.read, {
        get: (target, name: keyof Store["read"]) => (asked.push(name), target[name]),
      }),
    });
    const { ask } = await createTestServer({ wrap: counted });
    await ask("GET", "/v2/topics");
    await ask("GET", "/v2/topics", { token: reading });
    await ask("GET", "/v2/topics", { token: reading });
    expect(asked.filter((name) => name.startsWith("account"))).toEqual([
      "accountByToken",
      "accountByToken",
      "account",
    ]);
  });
});

test("a token that is replaced during its look-up is not cached", async () => {
  let replaced = false;
  const slow = (store: Store): Store => ({
    ...store,
    read: {
      ...store.read,
      accountByToken: async (hash) => {
        const found = await store.read.accountByToken(hash);
        if (!replaced)
          await store.execute("rotateToken", {
            account: "acc_1",
            password: "p",
            token: "new",
            tokenHash: "hash",
          });
        replaced = true;
        return found;
      },
    },
  });
  const { ask } = await createTestServer({ wrap: slow });
  await ask("GET", "/v2/keys");
  expect((await ask("GET", "/v2/keys")).status).toBe(401);
});

test("a source of a disabled account refuses calls so that the sender retries", async () => {
  const { ask, store } = await createTestServer();
  const { body: source } = await ask("POST", "/v2/sources", { body: '{"destination":"https://e.example"}' });
  const { pathname } = new URL(source.url);
  await store.execute("changeAccount", { account: "acc_1", change: { state: "passive" } });
  expect((await ask("POST", pathname, { token: null, body: "x" })).status).toBe(503);
  const { body } = await ask("GET", `/v2/sources/${source.sourceId}/rejections`);
  expect(body.rejections).toMatchObject([
    { reason: expect.stringContaining("waypost account enable acc_1") },
  ]);
  await store.execute("changeAccount", { account: "acc_1", change: { state: "active" } });
  expect((await ask("POST", pathname, { token: null, body: "x" })).status).toBe(200);
});
