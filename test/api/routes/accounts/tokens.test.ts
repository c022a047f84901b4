import { describe, expect, test } from "vitest";
import { parseAccountId } from "../../../../src/api/auth/token.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import type { TestServer, Reply } from "../../testServer.ts";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";

const make = (ask: TestServer["ask"], asked: object, token?: string): Promise<Reply> =>
  ask("POST", "/v2/tokens", { body: JSON.stringify(asked), ...(token === undefined ? {} : { token }) });
const bound = { verbs: ["publish"], destinations: ["https://e.example/in/*", "https://c.example/*"] };

/** Creates a server with a token that is bound to destinations. */
async function withBound(destinations: readonly string[] = bound.destinations) {
  const open = await createTestServer();
  const { body } = await make(open.ask, { verbs: ["publish"], destinations });
  const post = (path: string, headers: Record<string, string> = {}, text?: string) =>
    open.ask("POST", path, { token: body.token, headers, ...(text === undefined ? {} : { body: text }) });
  return { ...open, post };
}

const refused = (where: string) => ({
  status: 403,
  body: { error: expect.stringContaining(`token: not valid for ${where}; it may publish only to`) },
});

describe("/v2/tokens", () => {
  test("creates a token, whose text is shown only then, in the form that clients read", async () => {
    const { ask, clock } = await createTestServer();
    const { status, body, headers } = await make(ask, { ...bound, name: "shop", expires: "30d" });
    expect({ status, cache: headers["cache-control"] }).toEqual({ status: 201, cache: "no-store" });
    const { token, ...shown } = body;
    expect(shown).toEqual({
      tokenId: expect.stringMatching(/^tok_/),
      name: "shop",
      ...bound,
      createdAt: testTime,
      expiresAt: testTime + 30 * 86_400_000,
    });
    expect(parseAccountId(token)).toBe("acc_1");
    expect((await ask("GET", `/v2/tokens/${body.tokenId}`)).body).toEqual(shown);
    expect((await ask("GET", "/v2/tokens")).body).toEqual({ tokens: [shown] });
    expect(JSON.stringify((await ask("GET", "/v2/tokens")).body)).not.toContain(token);
    clock.now += 1;
    const second = await make(ask, { verbs: ["read", "manage"] });
    const page = await ask("GET", "/v2/tokens?count=1");
    expect(page.body.tokens).toEqual([shown]);
    expect((await ask("GET", `/v2/tokens?count=1&cursor=${page.body.cursor}`)).body.tokens).toMatchObject([
      { tokenId: second.body.tokenId },
    ]);
  });

  test("revokes a token at once", async () => {
    const { ask } = await createTestServer();
    const { body } = await make(ask, { verbs: ["read"] });
    expect((await ask("GET", "/v2/keys", { token: body.token })).status).toBe(200);
    expect(await ask("DELETE", `/v2/tokens/${body.tokenId}`)).toMatchObject({
      status: 200,
      body: { revoked: 1 },
    });
    expect((await ask("GET", "/v2/keys", { token: body.token })).status).toBe(401);
    expect((await ask("DELETE", `/v2/tokens/${body.tokenId}`)).status).toBe(404);
  });

  test("neither shows nor revokes tokens of another account", async () => {
    const { ask } = await createTestServer();
    const { body } = await make(ask, { verbs: ["read", "manage"] });
    for (const method of ["GET", "DELETE"])
      expect((await ask(method, `/v2/tokens/${body.tokenId}`, { token: otherToken })).status).toBe(404);
    expect((await ask("GET", "/v2/tokens", { token: otherToken })).body).toEqual({ tokens: [] });
    expect((await ask("GET", "/v2/tokens", { token: body.token })).body.tokens).toHaveLength(1);
    expect(await make(ask, { verbs: ["read"] }, body.token)).toMatchObject({
      status: 201,
      body: { madeBy: body.tokenId },
    });
  });

  test("does not let a token give rights that it does not have", async () => {
    const { ask } = await createTestServer();
    const { body } = await make(ask, { verbs: ["manage", "read"], expires: "1d" });
    expect(await make(ask, { verbs: ["publish"], expires: "1h" }, body.token)).toMatchObject({
      status: 403,
      body: { error: expect.stringMatching(/does not have the verb publish/) },
    });
    for (const expires of [undefined, "2d"])
      expect(await make(ask, { verbs: ["read"], expires }, body.token)).toMatchObject({
        status: 403,
        body: { error: expect.stringMatching(/^expires: later/) },
      });
    expect((await make(ask, { verbs: ["read", "manage"], expires: "1d" }, body.token)).status).toBe(201);
    for (const verbs of [["publish"], ["read"]]) {
      const { body: lesser } = await make(ask, { verbs });
      expect((await make(ask, { verbs }, lesser.token)).status).toBe(403);
    }
  });

  test.each([
    [{}, /^verbs: is missing/],
    [{ verbs: [] }, /^verbs: empty/],
    [{ verbs: ["all"] }, /^verbs\.0: must be one of publish, read, manage/],
    [{ verbs: ["publish"], destinations: ["https://*"] }, /^destinations: .* is not a destination pattern/],
    [{ verbs: ["read"], destinations: ["https://e.example/*"] }, /^destinations: requires the verb publish/],
    [
      { verbs: ["publish", "manage"], destinations: ["https://e.example/*"] },
      /^destinations: not valid with the verb manage/,
    ],
    [
      { verbs: ["publish"], destinations: Array.from({ length: 33 }, (_, n) => `queue:q${n}`) },
      /^destinations: 33 exceeds the limit of 32/,
    ],
    [{ verbs: ["read"], expires: "soon" }, /^expires: is not a duration/],
    [{ verbs: ["read"], expires: testTime }, /^expires: in the past/],
    [{ verbs: ["read"], name: "x".repeat(513) }, /^name: is longer/],
    [{ verbs: ["read"], more: 1 }, /^more: unknown field/],
  ])("refuses %j", async (asked, error) => {
    const { ask } = await createTestServer();
    expect(await make(ask, asked)).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(error) },
    });
  });

  test("has a limit for each account", async () => {
    const { ask, store } = await createTestServer();
    await store.execute("changeAccount", { account: "acc_1", change: { limits: { tokens: 1 } } });
    expect((await make(ask, { verbs: ["read"] })).status).toBe(201);
    expect(await make(ask, { verbs: ["read"] })).toMatchObject({
      status: 412,
      body: { error: expect.stringMatching(/^tokens: there are 1, .*waypost account limits acc_1 --tokens/) },
    });
  });
});

describe("a created token", () => {
  test("expires, even while it is cached", async () => {
    const { ask, clock } = await createTestServer();
    const { body } = await make(ask, { verbs: ["read"], expires: "1s" });
    expect((await ask("GET", "/v2/keys", { token: body.token })).status).toBe(200);
    clock.now += 1_000;
    expect(await ask("GET", "/v2/keys", { token: body.token })).toMatchObject({
      status: 401,
      body: { error: expect.stringMatching(/^token: expired at 2027-/) },
    });
  });

  test("survives a new password, and is as passive as its account", async () => {
    const { ask, store } = await createTestServer();
    const { body } = await make(ask, { verbs: ["publish", "read"] });
    await store.execute("rotateToken", { account: "acc_1", password: "p", token: "new", tokenHash: "hash" });
    const { token } = body;
    expect((await ask("POST", "/v2/publish/https://e.example", { token })).status).toBe(200);
    await store.execute("changeAccount", { account: "acc_1", change: { state: "passive" } });
    expect([
      (await ask("GET", "/v2/keys", { token })).status,
      (await ask("POST", "/v2/publish/https://e.example", { token })).status,
    ]).toEqual([200, 403]);
    await store.execute("deleteAccount", { account: "acc_1" });
    expect((await ask("GET", "/v2/keys", { token })).status).toBe(401);
  });

  test("has its use recorded once a minute, by a command that can wait", async () => {
    const noted: string[] = [];
    const watched = (store: Store): Store => ({
      ...store,
      execute: (name, input, how) => {
        if (name === "noteTokenUse") noted.push(JSON.stringify(how));
        return store.execute(name, input, how);
      },
    });
    const { ask, clock } = await createTestServer({ wrap: watched });
    const { body } = await make(ask, { verbs: ["read"] });
    for (let second = 0; second < 90; second++) {
      await ask("GET", "/v2/keys", { token: body.token });
      clock.now += 1_000;
    }
    expect(noted).toEqual(['{"canWait":true}', '{"canWait":true}']);
    expect((await ask("GET", `/v2/tokens/${body.tokenId}`)).body.usedAt).toBe(testTime + 60_000);
  });

  test("is not forwarded in a header that contains it", async () => {
    const { post, delivery } = await withBound(["https://e.example/*"]);
    await post("/v2/publish/https://e.example/", { "svc-header-forward": "true" });
    expect(delivery().message.headers.map(([name]) => name)).not.toContain("Authorization");
  });
});

describe("the destinations of a token restrict", () => {
  test("a publish, and its callbacks", async () => {
    const { post, deliveries } = await withBound();
    expect(
      (await post("/v2/publish/https://e.example/in/a", { "svc-callback": "https://c.example/" })).status,
    ).toBe(200);
    expect(await post("/v2/publish/https://e.example/out")).toMatchObject(refused("https://e.example/out"));
    for (const name of ["svc-callback", "upstash-failure-callback"])
      expect(
        await post("/v2/publish/https://e.example/in/a", { [name]: "https://evil.example/" }),
      ).toMatchObject(refused("https://evil.example/"));
    const nested = { "svc-callback": "https://c.example/", "svc-callback-callback": "https://evil.example/" };
    const answer = await post("/v2/publish/https://e.example/in/a", nested);
    expect([400, 403]).toContain(answer.status);
    expect(deliveries).toHaveLength(1);
  });

  test("each item of a batch, and its queue", async () => {
    const { post, deliveries } = await withBound(["https://e.example/in/*", "queue:a*"]);
    const items = [
      { destination: "https://e.example/in/1", queue: "a1" },
      { destination: "https://e.example/in/2", queue: "b" },
      { destination: "https://e.example/in/3" },
      { destination: "https://evil.example/", queue: "a1" },
    ];
    const { status, body } = await post("/v2/batch", {}, JSON.stringify(items));
    expect(status).toBe(200);
    expect(body).toMatchObject([
      { messageId: expect.any(String) },
      { error: expect.stringMatching(/^token: not valid for the queue b;/) },
      { error: expect.stringMatching(/^token: not valid for a message without a queue;/) },
      { error: expect.stringMatching(/^token: not valid for https:\/\/evil\.example\//) },
    ]);
    expect(await post("/v2/enqueue/b/https://e.example/in/4")).toMatchObject(refused("the queue b"));
    expect((await post("/v2/enqueue/a2/https://e.example/in/5")).status).toBe(200);
    expect(deliveries.map(({ message }) => message.url)).toEqual([
      "https://e.example/in/1",
      "https://e.example/in/5",
    ]);
  });

  test("a URL group by all its endpoints, unless they name the group", async () => {
    const { ask, post, deliveries } = await withBound();
    const add = (name: string, url: string) =>
      ask("POST", `/v2/topics/${name}/endpoints`, { body: JSON.stringify({ endpoints: [{ url }] }) });
    await add("g", "https://e.example/in/1");
    expect((await post("/v2/publish/g")).status).toBe(200);
    await add("g", "https://evil.example/");
    expect(await post("/v2/publish/g")).toMatchObject(refused("an endpoint of the URL group g"));
    expect(deliveries).toHaveLength(1);
    const { body } = await make(ask, { verbs: ["publish"], destinations: ["group:g"] });
    expect((await ask("POST", "/v2/publish/g", { token: body.token })).status).toBe(200);
    await add("h", "https://e.example/in/1");
    expect((await ask("POST", "/v2/publish/h", { token: body.token })).status).toBe(403);
    expect(deliveries).toHaveLength(3);
  });

  test("a schedule, and the token cannot replace another schedule", async () => {
    const { ask, post } = await withBound();
    const cron = { "svc-cron": "0 0 1 1 *" };
    expect(
      (await post("/v2/schedules/https://e.example/in/a", { ...cron, "svc-schedule-id": "own" })).status,
    ).toBe(200);
    expect(await post("/v2/schedules/https://evil.example/", cron)).toMatchObject(
      refused("https://evil.example/"),
    );
    expect(
      await post("/v2/schedules/https://e.example/in/a", {
        ...cron,
        "svc-callback": "https://evil.example/",
      }),
    ).toMatchObject(refused("https://evil.example/"));
    expect(
      await post("/v2/schedules/https://e.example/in/b", { ...cron, "svc-schedule-id": "own" }),
    ).toMatchObject({
      status: 403,
      body: { error: expect.stringMatching(/requires 'manage'/) },
    });
    await ask("POST", "/v2/topics/g/endpoints", { body: '{"endpoints":[{"url":"https://e.example/in/1"}]}' });
    expect(await post("/v2/schedules/g", cron), "it may have other endpoints when it fires").toMatchObject(
      refused("the URL group g"),
    );
    expect((await ask("GET", "/v2/schedules")).body).toMatchObject([
      { scheduleId: "own", destination: "https://e.example/in/a" },
    ]);
  });

  test("a run by its URL, and all runs of a batch", async () => {
    const { post, deliveries } = await withBound();
    expect((await post("/v2/trigger/https://e.example/in/flow")).status).toBe(200);
    expect(await post("/v2/trigger/https://evil.example/flow")).toMatchObject(
      refused("https://evil.example/flow"),
    );
    expect(
      await post("/v2/trigger/https://e.example/in/flow", {
        "svc-failure-callback": "https://evil.example/",
      }),
    ).toMatchObject(refused("https://evil.example/"));
    const many = JSON.stringify([
      { destination: "https://e.example/in/1" },
      { destination: "https://evil.example/" },
    ]);
    expect(await post("/v2/batch/trigger", {}, many)).toMatchObject({
      status: 403,
      body: { error: expect.stringMatching(/^message 2 of 2: token: not valid for https:\/\/evil/) },
    });
    expect(deliveries).toHaveLength(1);
  });

  test("the steps of a run: its history goes only to its own endpoint", async () => {
    const { ask, post, deliveries } = await withBound();
    const secret = { body: "secret" };
    await ask("POST", "/v2/trigger/https://private.example/flow", {
      ...secret,
      headers: { "svc-workflow-runid": "theirs" },
    });
    const { body: own } = await post("/v2/trigger/https://e.example/in/flow");
    const step = JSON.stringify({ stepId: 1, stepName: "s", stepType: "Run", out: "1", concurrent: 1 });
    const of = (runId: string, init = "false") => ({
      "svc-workflow-runid": runId,
      "svc-workflow-init": init,
    });
    const invoke = JSON.stringify({
      body: "",
      headers: {},
      workflowRunId: "theirs",
      workflowUrl: "https://e.example/in/a",
      step: { stepId: 1, stepName: "s", stepType: "Invoke", concurrent: 1 },
    });
    const theirs = refused("the run theirs");
    const to = "/v2/publish/https://e.example/in/a";
    expect(await post(to, of("theirs"), step)).toMatchObject(theirs);
    expect(
      await post(to, { ...of("theirs", "true"), "svc-workflow-trigger-by-sdk": "true" }, "x"),
    ).toMatchObject(theirs);
    expect(await post(to, { ...of("mine", "true"), "svc-workflow-invoke": "true" }, invoke)).toMatchObject(
      theirs,
    );
    const call = {
      ...of("theirs"),
      "svc-workflow-calltype": "toCallback",
      "svc-callback": "https://c.example/",
    };
    expect(await post(to, call, "x")).toMatchObject(theirs);
    expect((await post("/v2/publish/https://e.example/in/flow", of(own.workflowRunId), step)).status).toBe(
      200,
    );
    expect(deliveries.map(({ message }) => message.run?.runId)).toEqual([
      "theirs",
      own.workflowRunId,
      own.workflowRunId,
    ]);
  });

  test("notifications, because they reach runs anywhere", async () => {
    const { post } = await withBound();
    for (const path of ["/v2/notify/e", "/v2/notify/run/e", "/v2/wait/e"])
      expect(await post(path)).toMatchObject({
        status: 403,
        body: { error: expect.stringMatching(/^token: this request may reach any destination/) },
      });
  });
});
