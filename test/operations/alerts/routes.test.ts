import { describe, expect, test } from "vitest";
import { alertEvents } from "../../../src/operations/alerts/alert.ts";
import { createTestServer, otherToken } from "../../api/testServer.ts";

const toSecret = (bytes: number): string => `whsec_${Buffer.alloc(bytes, "s").toString("base64")}`;
const put = (body: unknown) => ({ body: JSON.stringify(body) });

describe("the URL of alerts", () => {
  test("is off until it is set, read, and removed", async () => {
    const { ask } = await createTestServer();
    expect(await ask("GET", "/v2/alerts")).toMatchObject({
      status: 404,
      body: { error: "alerts: no URL is set; PUT /v2/alerts sets one" },
    });
    const all = { url: "https://ops.example/x", after: 300, events: [...alertEvents], hasSecret: false };
    expect(await ask("PUT", "/v2/alerts", put({ url: all.url }))).toMatchObject({ status: 200, body: all });
    expect((await ask("GET", "/v2/alerts")).body).toEqual(all);
    const some = { url: "https://ops.example/y", after: 60, events: ["host.failing"], hasSecret: false };
    expect((await ask("PUT", "/v2/alerts", put({ ...some, hasSecret: undefined }))).body).toEqual(some);
    expect((await ask("GET", "/v2/alerts", { token: otherToken })).status).toBe(404);
    expect((await ask("DELETE", "/v2/alerts")).body).toEqual({ deleted: true });
    expect((await ask("DELETE", "/v2/alerts")).body).toEqual({ deleted: false });
    expect((await ask("GET", "/v2/alerts")).status).toBe(404);
    const { body } = await ask("GET", "/v2/audit");
    expect(body.entries.map(({ action }: { action: string }) => action)).toEqual([
      "alerts.delete",
      "alerts.set",
      "alerts.set",
    ]);
  });

  test.each([
    [{}, "url"],
    [{ url: "ftp://ops.example" }, "url"],
    [{ url: "nonsense" }, "url"],
    [{ url: "https://ops.example", after: 59 }, "after"],
    [{ url: "https://ops.example", after: 1.5 }, "after"],
    [{ url: "https://ops.example", events: [] }, "events"],
    [{ url: "https://ops.example", events: ["rain"] }, "events"],
    [{ url: "https://ops.example", color: "red" }, "color"],
    [{ url: "https://ops.example", secret: 5 }, "secret"],
    [{ url: "https://ops.example", secret: "" }, "secret"],
    [{ url: "https://ops.example", secret: toSecret(23) }, "secret"],
    [{ url: "https://ops.example", secret: toSecret(65) }, "secret"],
    [{ url: "https://ops.example", secret: `${toSecret(24)}=` }, "secret"],
    [{ url: "https://ops.example", secret: toSecret(24).slice("whsec_".length) }, "secret"],
    [{ url: "https://ops.example", secret: `${toSecret(24)}\n` }, "secret"],
  ])("%j is refused", async (body, field) => {
    const { ask } = await createTestServer();
    const reply = await ask("PUT", "/v2/alerts", put(body));
    expect(reply).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(new RegExp(`^${field}`)) },
    });
  });

  test.each([24, 32, 64])("has a secret of %i bytes, which no response and no log shows", async (bytes) => {
    const { ask, store } = await createTestServer();
    const secret = toSecret(bytes);
    const set = await ask("PUT", "/v2/alerts", put({ url: "https://ops.example", secret }));
    expect(set).toMatchObject({ status: 200, body: { hasSecret: true } });
    const shown = [set, await ask("GET", "/v2/alerts"), await ask("GET", "/v2/audit")];
    expect(JSON.stringify(shown)).not.toContain(secret.slice(6, 20));
    expect((await store.read.accounts())[0]?.alerts).toMatchObject({ secret });
    // Each request replaces the whole setting.
    const again = await ask("PUT", "/v2/alerts", put({ url: "https://ops.example" }));
    expect(again.body).toMatchObject({ hasSecret: false });
    expect((await store.read.accounts())[0]?.alerts).not.toHaveProperty("secret");
  });

  test("does not show a refused secret", async () => {
    const { ask } = await createTestServer();
    const secret = "whsec_not-a-secret-but-private";
    const refused = await ask("PUT", "/v2/alerts", put({ url: "https://ops.example", secret }));
    expect(refused.status).toBe(400);
    expect(JSON.stringify(refused)).not.toContain("private");
  });

  test("is set only by a token that may read, and not by one that may only read", async () => {
    const { ask } = await createTestServer();
    const makeToken = async (verbs: readonly string[]) =>
      String((await ask("POST", "/v2/tokens", put({ verbs }))).body.token);
    const body = JSON.stringify({ url: "https://ops.example" });
    for (const [verbs, status] of [
      [["read"], 403],
      [["manage"], 403],
      [["read", "manage"], 200],
    ] as const)
      expect((await ask("PUT", "/v2/alerts", { token: await makeToken(verbs), body })).status).toBe(status);
  });
});
