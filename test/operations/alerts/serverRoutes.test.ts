import { describe, expect, test } from "vitest";
import { serverAlertEvents } from "../../../src/operations/alerts/alert.ts";
import type { TestServer } from "../../api/testServer.ts";
import { createTestServer, operatorPassword, token } from "../../api/testServer.ts";
import { formatBasic } from "../../api/routes/accounts/possessions.ts";

const path = "/v2/admin/alerts";
const url = "https://ops.example/x";
const secret = `whsec_${Buffer.alloc(24, "s").toString("base64")}`;
const operator = formatBasic("operator", operatorPassword);

const as =
  ({ ask }: TestServer, authorization = operator) =>
  (method: string, at = path, body?: unknown) =>
    ask(method, at, {
      token: null,
      headers: { authorization },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });

describe("the URL of alerts about the server", () => {
  test("is off until it is set, read, and removed, and its secret is never shown", async () => {
    const server = await createTestServer();
    const ask = as(server);
    expect(await ask("GET")).toMatchObject({
      status: 404,
      body: { message: "alerts: no URL is set; PUT /v2/admin/alerts sets one" },
    });
    expect((await ask("GET", `${path}/log`)).body).toEqual({ alerts: [], dropped: 0 });
    const all = { url, events: [...serverAlertEvents] };
    const replies = [await ask("PUT", path, { url, secret }), await ask("GET")];
    expect(replies).toMatchObject([
      { status: 200, body: all },
      { status: 200, body: all },
    ]);
    expect(JSON.stringify([replies, server.lines])).not.toContain(secret.slice(6, 20));
    expect(await server.store.read.serverAlerts()).toEqual({ ...all, secret });
    const some = { url, events: ["disk.low"] };
    expect((await ask("PUT", path, { ...some, secret })).body).toEqual(some);
    expect((await ask("DELETE")).body).toEqual({ deleted: true });
    expect((await ask("DELETE")).body).toEqual({ deleted: false });
    expect((await ask("GET")).status).toBe(404);
  });

  test.each([
    [{ secret }, "url"],
    [{ url: "ftp://ops.example", secret }, "url"],
    [{ url }, "secret"],
    [{ url, secret: "short" }, "secret"],
    [{ url, secret, events: [] }, "events"],
    [{ url, secret, events: ["host.failing"] }, "events"],
    [{ url, secret, after: 60 }, "after"],
  ])("%j is refused", async (body, field) => {
    const reply = await as(await createTestServer())("PUT", path, body);
    expect(reply).toMatchObject({
      status: 400,
      body: { message: expect.stringMatching(new RegExp(`^${field}`)) },
    });
  });

  test("leaves the changes in the audit log of the server, which no account sees", async () => {
    const server = await createTestServer();
    const ask = as(server);
    await ask("PUT", path, { url, secret });
    await ask("DELETE");
    await ask("DELETE");
    const by = { kind: "operator", address: "127.0.0.1" };
    const { entries } = (await ask("GET", "/v2/admin/audit")).body;
    expect(entries).toMatchObject([
      { action: "alerts.delete", object: null, by },
      { action: "alerts.set", object: null, by },
    ]);
    const page = (query: string) => ask("GET", `/v2/admin/audit?count=1${query}`);
    const first = (await page("")).body;
    expect(first.entries).toEqual(entries.slice(0, 1));
    expect((await page(`&cursor=${first.cursor}`)).body).toEqual({ entries: entries.slice(1) });
    expect((await server.ask("GET", "/v2/audit")).body.entries).toEqual([]);
    expect((await as(server, `Bearer ${token}`)("GET", "/v2/admin/audit")).status).toBe(401);
  });

  test("is closed for an account", async () => {
    const server = await createTestServer();
    await as(server)("PUT", path, { url, secret });
    for (const [method, at] of [
      ["GET", path],
      ["PUT", path],
      ["DELETE", path],
      ["GET", `${path}/log`],
    ] as const)
      expect((await as(server, `Bearer ${token}`)(method, at, { url, secret })).status).toBe(401);
    expect(await server.store.read.serverAlerts()).toMatchObject({ url });
  });
});
