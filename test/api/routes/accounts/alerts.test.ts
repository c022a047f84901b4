import { describe, expect, test } from "vitest";
import { alertEvents } from "../../../../src/core/model/alert.ts";
import { createTestServer, otherToken } from "../../testServer.ts";

const put = (body: unknown) => ({ body: JSON.stringify(body) });

describe("the URL of alerts", () => {
  test("is off until it is set, read, and removed", async () => {
    const { ask } = await createTestServer();
    expect(await ask("GET", "/v2/alerts")).toMatchObject({
      status: 404,
      body: { error: "alerts: no URL is set; PUT /v2/alerts sets one" },
    });
    const all = { url: "https://ops.example/x", after: 300, events: [...alertEvents] };
    expect(await ask("PUT", "/v2/alerts", put({ url: all.url }))).toMatchObject({ status: 200, body: all });
    expect((await ask("GET", "/v2/alerts")).body).toEqual(all);
    const some = { url: "https://ops.example/y", after: 60, events: ["host.failing"] };
    expect((await ask("PUT", "/v2/alerts", put(some))).body).toEqual(some);
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
    [{ url: "https://ops.example", secret: "s" }, "secret"],
  ])("%j is refused", async (body, field) => {
    const { ask } = await createTestServer();
    const reply = await ask("PUT", "/v2/alerts", put(body));
    expect(reply).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(new RegExp(`^${field}`)) },
    });
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
