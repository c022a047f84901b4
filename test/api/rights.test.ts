import { describe, expect, test } from "vitest";
import { changesAnything } from "../../src/api/route.ts";
import { routes } from "../../src/api/routes/index.ts";
import { readOnlyTokenOf, tokenOf } from "../../src/api/token.ts";
import type { Store } from "../../src/store/store.ts";
import { house, token } from "./house.ts";

const urlOf = (path: string): string => path.replace("{destination}", "https://e.example/x").replace(/\{\w+\}/g, "1800000000000-0");
const guarded = routes
  .filter(({ access }) => access === "token")
  .map((row) => ({
    ...{ name: `${row.method} ${row.path}`, method: row.method, url: urlOf(row.path), changes: changesAnything(row) },
    isForSteps: row.operation === "step",
  }));
/** Ways in that steps of runs come by as well: what they refuse is said when it is known what came. */
const bodies: Readonly<Record<string, string>> = { "POST /v2/batch": '[{"destination":"https://e.example"}]' };
const reading = readOnlyTokenOf({ id: "acc_1", token });

describe.each(guarded)("$name", ({ name, method, url, changes, isForSteps }) => {
  test("is open for a token that can only read if it changes nothing", async () => {
    const { ask } = await house();
    const { status, body } = await ask(method, url, { token: reading });
    if (changes)
      expect({ status, body }).toEqual({ status: 403, body: { error: expect.stringMatching(/^token: it is for reading only/) } });
    else expect([200, 400, 404]).toContain(status);
    expect((await ask(method, `${url}?svc_token=${encodeURIComponent(reading)}`, { token: null })).status).toBe(status);
  });

  test("is open for an account that is disabled if it changes nothing", async () => {
    const { ask, store } = await house();
    await ask("GET", "/v2/keys");
    await store.execute("changeAccount", { account: "acc_1", change: { state: "passive" } });
    const { status, body } = await ask(method, url, bodies[name] === undefined ? {} : { body: bodies[name] });
    if (changes && !(isForSteps && /wait|notify/.test(url)))
      expect({ status, body }).toEqual({ status: 403, body: { error: expect.stringContaining("waypost account enable acc_1") } });
    else expect([200, 400, 404]).toContain(status);
  });
});

test("only what is known to change nothing is read", () => {
  expect(guarded.filter(({ changes, method }) => changes !== (method !== "GET")).map(({ name }) => name)).toEqual(["GET /v2/keys/rotate"]);
});

describe("a token for reading", () => {
  test.each([
    ["of another account", tokenOf("acc_2", "pass")],
    ["of an account that is not there", readOnlyTokenOf({ id: "nobody", token })],
    ["made of another token", readOnlyTokenOf({ id: "acc_1", token: "another" })],
    ["with nothing in it", Buffer.from("{}").toString("base64")],
    ["with a list in it", Buffer.from("[1]").toString("base64")],
    ["with another id", Buffer.from('{"UserID":{"a":1}}').toString("base64")],
    ["that is very long", tokenOf("acc_1", "x".repeat(10_000))],
  ])("%s is none", async (_, wrong) => {
    const { ask } = await house();
    expect(await ask("GET", "/v2/keys", { token: wrong })).toMatchObject({
      status: 401,
      body: { error: expect.stringMatching(/^token: unk/) },
    });
  });

  test("ends with the token that it is made of", async () => {
    const { ask, store } = await house();
    expect((await ask("GET", "/v2/keys", { token: reading })).status).toBe(200);
    await store.execute("rotateToken", { account: "acc_1", password: "p", token: "new", tokenHash: "hash" });
    expect((await ask("GET", "/v2/keys", { token: reading })).status).toBe(401);
    expect((await ask("GET", "/v2/keys", { token })).status).toBe(401);
    expect((await ask("GET", "/v2/keys", { token: readOnlyTokenOf({ id: "acc_1", token: "new" }) })).status).toBe(200);
  });

  test("takes one more read than the other token, and none once it is known", async () => {
    const asked: string[] = [];
    const counted = (store: Store): Store => ({
      ...store,
      read: new Proxy(store.read, { get: (target, name: keyof Store["read"]) => (asked.push(name), target[name]) }),
    });
    const { ask } = await house({ wrap: counted });
    await ask("GET", "/v2/topics");
    await ask("GET", "/v2/topics", { token: reading });
    await ask("GET", "/v2/topics", { token: reading });
    expect(asked.filter((name) => name.startsWith("account"))).toEqual(["accountByToken", "accountByToken", "account"]);
  });
});

test("a token that was looked up while it was replaced is not remembered", async () => {
  let replaced = false;
  const slow = (store: Store): Store => ({
    ...store,
    read: {
      ...store.read,
      accountByToken: async (hash) => {
        const found = await store.read.accountByToken(hash);
        if (!replaced) await store.execute("rotateToken", { account: "acc_1", password: "p", token: "new", tokenHash: "hash" });
        replaced = true;
        return found;
      },
    },
  });
  const { ask } = await house({ wrap: slow });
  await ask("GET", "/v2/keys");
  expect((await ask("GET", "/v2/keys")).status).toBe(401);
});

test("a source of a disabled account takes nothing in, and lets its sender come again", async () => {
  const { ask, store } = await house();
  const { body: source } = await ask("POST", "/v2/sources", { body: '{"destination":"https://e.example"}' });
  const { pathname } = new URL(source.url);
  await store.execute("changeAccount", { account: "acc_1", change: { state: "passive" } });
  expect((await ask("POST", pathname, { token: null, body: "x" })).status).toBe(503);
  const { body } = await ask("GET", `/v2/sources/${source.sourceId}/rejections`);
  expect(body.rejections).toMatchObject([{ reason: expect.stringContaining("waypost account enable acc_1") }]);
  await store.execute("changeAccount", { account: "acc_1", change: { state: "active" } });
  expect((await ask("POST", pathname, { token: null, body: "x" })).status).toBe(200);
});
