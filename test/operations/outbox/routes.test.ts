import { describe, expect, test } from "vitest";
import { createTestServer, otherToken, token } from "../../api/testServer.ts";

const databaseUrl = "postgres://shop:hidden-word@db.example:5432/shop";
const put = (body: unknown) => ({ body: JSON.stringify(body) });

describe("outboxes", () => {
  test("are added, listed, replaced and removed", async () => {
    const { ask, clock } = await createTestServer();
    const added = await ask("PUT", "/v2/outboxes/shop", put({ databaseUrl, token }));
    const shown = {
      ...{ name: "shop", schema: "waypost", tokenId: null, pooled: false, createdAt: clock.now },
      ...{ state: "stopped", taken: 0, waiting: 0, rejected: 0 },
    };
    expect(added).toMatchObject({ status: 200, body: shown });
    expect((await ask("GET", "/v2/outboxes/shop")).body).toEqual(shown);
    expect((await ask("GET", "/v2/outboxes")).body).toEqual({ outboxes: [shown] });
    const changed = await ask(
      "PUT",
      "/v2/outboxes/shop",
      put({ databaseUrl, token, schema: "jobs_2", pooled: true }),
    );
    expect(changed.body).toEqual({ ...shown, schema: "jobs_2", pooled: true });
    expect((await ask("POST", "/v2/outboxes/shop/take-over")).body).toMatchObject({ name: "shop" });
    expect((await ask("DELETE", "/v2/outboxes/shop")).body).toEqual({ deleted: true });
    expect((await ask("DELETE", "/v2/outboxes/shop")).body).toEqual({ deleted: false });
    for (const [method, path] of [
      ["GET", "/v2/outboxes/shop"],
      ["POST", "/v2/outboxes/shop/take-over"],
    ] as const)
      expect(await ask(method, path)).toMatchObject({
        status: 404,
        body: { error: 'outbox: there is no outbox "shop"' },
      });
    const { body } = await ask("GET", "/v2/audit");
    expect(body.entries.map(({ action }: { action: string }) => action)).toEqual([
      "outbox.delete",
      "outbox.set",
      "outbox.set",
    ]);
  });

  test.each([
    [{ token }, "databaseUrl"],
    [{ databaseUrl }, "token"],
    [{ databaseUrl: "mysql://a/b", token }, "databaseUrl"],
    [{ databaseUrl: "postgres://", token }, "databaseUrl"],
    [{ databaseUrl: "postgres://db.example/", token }, "databaseUrl"],
    [{ databaseUrl: "postgres:///shop", token }, "databaseUrl"],
    [{ databaseUrl: `${databaseUrl}?host=/var/run`, token }, "databaseUrl"],
    [{ databaseUrl: `${databaseUrl}?sslrootcert=/etc/passwd`, token }, "databaseUrl"],
    [{ databaseUrl: `${databaseUrl}?sslmode=maybe`, token }, "databaseUrl"],
    [{ databaseUrl: "postgres://%zz@db.example/shop", token }, "databaseUrl"],
    [{ databaseUrl: `postgres://db.example/${"x".repeat(2_000)}`, token }, "databaseUrl"],
    [{ databaseUrl, token: "unknown" }, "token"],
    [{ databaseUrl, token: otherToken }, "token"],
    [{ databaseUrl, token, schema: 'a"; drop table b' }, "schema"],
    [{ databaseUrl, token, schema: "Waypost" }, "schema"],
    [{ databaseUrl, token, pooled: "yes" }, "pooled"],
    [{ databaseUrl, token, color: "red" }, "color"],
  ])("%j is refused, and the response does not repeat the URL", async (body, field) => {
    const { ask } = await createTestServer();
    const reply = await ask("PUT", "/v2/outboxes/shop", put(body));
    expect(reply).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(new RegExp(`^${field}`)) },
    });
    expect(JSON.stringify(reply)).not.toContain("hidden-word");
    expect((await ask("GET", "/v2/outboxes")).body).toEqual({ outboxes: [] });
  });

  test("have a plain name", async () => {
    const { ask } = await createTestServer();
    for (const name of ["a%20b", "%C3%BC", "x".repeat(101)])
      expect((await ask("PUT", `/v2/outboxes/${name}`, put({ databaseUrl, token }))).body.error).toMatch(
        /^name/,
      );
  });

  test("never show the URL or the token: not in responses, logs and the audit log", async () => {
    const { ask, lines, store } = await createTestServer();
    const replies = [
      await ask("PUT", "/v2/outboxes/shop", put({ databaseUrl, token })),
      await ask("GET", "/v2/outboxes"),
      await ask("GET", "/v2/outboxes/shop"),
      await ask("POST", "/v2/outboxes/shop/take-over"),
      await ask("GET", "/v2/audit"),
    ];
    expect((await store.read.account("acc_1"))?.outboxes?.[0]?.url).toBe(databaseUrl);
    for (const secret of ["hidden-word", "db.example", token])
      expect(JSON.stringify([replies, lines])).not.toContain(secret);
  });

  test("belong to their account", async () => {
    const { ask } = await createTestServer();
    await ask("PUT", "/v2/outboxes/shop", put({ databaseUrl, token }));
    const theirs = { token: otherToken };
    expect((await ask("GET", "/v2/outboxes", theirs)).body).toEqual({ outboxes: [] });
    expect((await ask("GET", "/v2/outboxes/shop", theirs)).status).toBe(404);
    expect((await ask("POST", "/v2/outboxes/shop/take-over", theirs)).status).toBe(404);
    expect((await ask("DELETE", "/v2/outboxes/shop", theirs)).body).toEqual({ deleted: false });
    expect((await ask("GET", "/v2/outboxes/shop")).status).toBe(200);
  });

  test("need a token that may manage, and have one that may publish", async () => {
    const { ask } = await createTestServer();
    const makeToken = async (verbs: readonly string[]) =>
      (await ask("POST", "/v2/tokens", put({ verbs }))).body as { token: string; id: string };
    const [reader, publisher, manager] = [
      await makeToken(["read"]),
      await makeToken(["publish"]),
      await makeToken(["manage"]),
    ];
    const body = JSON.stringify({ databaseUrl, token: publisher.token });
    for (const { token: by } of [reader, publisher])
      for (const [method, path] of [
        ["PUT", "/v2/outboxes/shop"],
        ["DELETE", "/v2/outboxes/shop"],
        ["POST", "/v2/outboxes/shop/take-over"],
      ] as const)
        expect((await ask(method, path, { token: by, ...(method === "PUT" && { body }) })).status).toBe(403);
    expect((await ask("GET", "/v2/outboxes", { token: reader.token })).status).toBe(200);
    expect((await ask("GET", "/v2/outboxes", { token: publisher.token })).status).toBe(403);
    expect((await ask("PUT", "/v2/outboxes/shop", { token: manager.token, body })).status).toBe(200);
    const refused = await ask("PUT", "/v2/outboxes/shop", put({ databaseUrl, token: manager.token }));
    expect(refused.body.error).toBe("token: lacks the verb publish");
  });
});
