import { beforeEach, describe, expect, test } from "vitest";
import { limits } from "../../../../src/engine/core/values/limits.ts";
import { createTestServer, testTime } from "../../testServer.ts";
import type { TestServer, Reply } from "../../testServer.ts";

let server: TestServer;
beforeEach(async () => {
  server = await createTestServer();
});

const second = 1_000;
const minute = 60_000;
const first = "https://first.example/a";
const other = "https://other.example/b";

const post = (
  path: string,
  headers: Record<string, string> = {},
  more: { token?: string; body?: string } = {},
): Promise<Reply> => server.ask("POST", path, { headers, ...more });

/** Creates a token and returns its text. */
const tokenFor = async (...verbs: string[]): Promise<string> =>
  (await server.ask("POST", "/v2/tokens", { body: JSON.stringify({ verbs }) })).body.token;

describe("the deduplication of a message", () => {
  const read = async (id: string) => (await server.ask("GET", `/v2/messages/${id}`)).body.deduplication;

  test("shows its id, and until when a repeated message is dropped", async () => {
    const { messageId } = (await post(`/v2/publish/${first}`, { "svc-deduplication-id": "order 1" })).body;
    expect(await read(messageId)).toEqual({ by: "id", id: "order 1", until: testTime + 10 * minute });
    server.clock.now += 11 * minute;
    expect(await read(messageId)).toEqual({ by: "id", id: "order 1" });
    const again = (await post(`/v2/publish/${first}`, { "svc-deduplication-id": "order 1" })).body;
    expect(await read(messageId)).toEqual({ by: "id", id: "order 1", messageId: again.messageId });
    expect(await read(again.messageId)).toMatchObject({ until: testTime + 21 * minute });
  });

  test("is by content without an id, and absent without both", async () => {
    const byContent = { "svc-content-based-deduplication": "true" };
    const made = (await post(`/v2/publish/${first}`, byContent)).body;
    expect(await read(made.messageId)).toEqual({ by: "content", until: testTime + 10 * minute });
    const plain = (await post(`/v2/publish/${first}`)).body;
    expect(await read(plain.messageId)).toBeUndefined();
  });

  test("is for each endpoint of a URL group", async () => {
    await server.ask("POST", "/v2/topics/g/endpoints", {
      body: JSON.stringify({ endpoints: [{ url: first }, { url: other }] }),
    });
    const made = (await post("/v2/publish/g", { "svc-deduplication-id": "1" })).body;
    for (const { messageId } of made)
      expect(await read(messageId)).toEqual({ by: "id", id: "1", until: testTime + 10 * minute });
  });
});

describe("the response to a duplicate", () => {
  const repeat = { "svc-deduplication-id": "1" };

  test("has the URL of the earlier message with its id", async () => {
    const made = await post(`/v2/publish/${first}`, repeat);
    const told = { status: 202, body: { messageId: made.body.messageId, url: first, deduplicated: true } };
    expect(await post(`/v2/publish/${other}`, repeat)).toMatchObject(told);
    expect(await post(`/v2/enqueue/q/${other}`, repeat)).toMatchObject(told);
    const items = await post(
      "/v2/batch",
      {},
      { body: JSON.stringify([{ destination: other, headers: repeat }]) },
    );
    expect(items.body).toEqual([told.body]);
  });

  test("has for a token without the verb read only the URL that it sent", async () => {
    const publishing = await tokenFor("publish");
    const reading = await tokenFor("publish", "read");
    const made = await post(`/v2/publish/${first}`, repeat);
    const { messageId } = made.body;
    const repeated = async (url: string, token: string) =>
      (await post(`/v2/publish/${url}`, repeat, { token })).body;
    expect(await repeated(other, publishing)).toEqual({ messageId, deduplicated: true });
    expect(await repeated(first, publishing)).toEqual({ messageId, url: first, deduplicated: true });
    expect(await repeated(other, reading)).toEqual({ messageId, url: first, deduplicated: true });
  });

  test("has the URLs of the earlier messages to a URL group only for a token that may read", async () => {
    await server.ask("POST", "/v2/topics/g/endpoints", {
      body: JSON.stringify({ endpoints: [{ url: first }] }),
    });
    const made = await post("/v2/publish/g?code=secret", repeat);
    const [{ messageId }] = made.body;
    expect(made.body).toEqual([{ messageId, url: `${first}?code=secret` }]);
    const again = async (query: string, token?: string) =>
      (await post(`/v2/publish/g${query}`, repeat, token ? { token } : {})).body;
    const older = { messageId, url: `${first}?code=secret`, deduplicated: true };
    expect(await again("?code=other")).toEqual([older]);
    const publishing = await tokenFor("publish");
    expect(await again("?code=other", publishing)).toEqual([{ messageId, deduplicated: true }]);
    expect(await again("?code=secret", publishing)).toEqual([{ messageId, deduplicated: true }]);
  });

  test("has no URLs of a group's endpoints for a token without the verb read", async () => {
    await server.ask("POST", "/v2/topics/g/endpoints", {
      body: JSON.stringify({ endpoints: [{ url: `${first}?key=secret` }] }),
    });
    const publishing = await tokenFor("publish");
    const reading = await tokenFor("publish", "read");
    const message = { messageId: expect.stringMatching(/^msg_/) };
    expect((await post("/v2/publish/g", {}, { token: publishing })).body).toEqual([message]);
    expect((await post("/v2/enqueue/q/g", {}, { token: publishing })).body).toEqual([message]);
    const body = JSON.stringify([{ destination: "g" }, { destination: other }]);
    expect((await post("/v2/batch", {}, { token: publishing, body })).body).toEqual([
      [message],
      { ...message, url: other },
    ]);
    expect((await post("/v2/publish/g", {}, { token: reading })).body).toEqual([
      { ...message, url: `${first}?key=secret` },
    ]);
  });
});

describe.each(["svc", "upstash"])("%s-deduplication-window", (brand) => {
  const window = (text: string) => ({ "svc-deduplication-id": "1", [`${brand}-deduplication-window`]: text });

  test.each([
    ["1s", second],
    ["30", 30 * second],
    ["1h", 60 * minute],
    ["90d", limits.deduplicationWindow],
  ])(
    "%s: a repetition is a duplicate within the window, and a new message after it",
    async (text, length) => {
      const { now } = server.clock;
      const made = await post(`/v2/publish/${first}`, window(text));
      server.clock.now = now + length - 1;
      expect(await post(`/v2/publish/${first}`, window("1s"))).toMatchObject({
        status: 202,
        body: { messageId: made.body.messageId },
      });
      server.clock.now = now + length;
      expect((await post(`/v2/publish/${first}`, window("1s"))).status).toBe(200);
    },
  );

  test("of the accepted message applies, not that of the repetition", async () => {
    await post(`/v2/publish/${first}`, window("1s"));
    expect((await post(`/v2/publish/${first}`, window("90d"))).status).toBe(202);
    server.clock.now += second;
    expect((await post(`/v2/publish/${first}`, window("1s"))).status).toBe(200);
  });

  test("applies to query parameters, contents, queues, batches, URL groups and schedules", async () => {
    await server.ask("POST", "/v2/topics/g/endpoints", {
      body: JSON.stringify({ endpoints: [{ url: first }] }),
    });
    const id = { "svc-deduplication-id": "1" };
    const name = `${brand}-deduplication-window`;
    const ways: (() => Promise<Reply>)[] = [
      () => post(`/v2/publish/${first}?${name}=1m`, { "svc-deduplication-id": "2" }),
      () => post(`/v2/publish/${first}`, { "svc-content-based-deduplication": "true", [name]: "1m" }),
      () => post(`/v2/enqueue/q/${first}`, { "svc-deduplication-id": "3", [name]: "1m" }),
      () =>
        post(
          "/v2/batch",
          {},
          { body: JSON.stringify([{ destination: first, headers: { ...id, [name]: "1m" } }]) },
        ),
      () => post("/v2/publish/g", { ...id, [name]: "1m" }),
      () => post(`/v2/schedules/${first}`, { ...id, [name]: "1m", "svc-cron": "0 0 1 1 *" }),
    ];
    const doubles = async () => {
      const doubled: boolean[] = [];
      for (const way of ways)
        doubled.push(JSON.stringify((await way()).body).includes('"deduplicated":true'));
      return doubled;
    };
    expect(await doubles()).toEqual(ways.map(() => false));
    server.clock.now += minute - 1;
    expect(await doubles()).toEqual(ways.map(() => true));
    server.clock.now += 1;
    expect(await doubles()).toEqual(ways.map(() => false));
  });

  test("among a URL group's default headers applies only to requests with an id", async () => {
    await server.ask("POST", "/v2/topics/g/endpoints", {
      body: JSON.stringify({ endpoints: [{ url: first }] }),
    });
    const headers = { [`${brand === "svc" ? "Svc" : "Upstash"}-Deduplication-Window`]: "1s" };
    expect((await server.ask("PATCH", "/v2/topics/g", { body: JSON.stringify({ headers }) })).status).toBe(
      200,
    );
    expect((await post("/v2/publish/g")).status).toBe(200);
    expect((await post("/v2/publish/g", { "svc-deduplication-id": "1" })).status).toBe(200);
    expect((await post("/v2/publish/g", { "svc-deduplication-id": "1" })).status).toBe(202);
    server.clock.now += second;
    expect((await post("/v2/publish/g", { "svc-deduplication-id": "1" })).status).toBe(200);
  });

  test.each(["0", "0s", "", "-1s", "90d1s", "91d", "soon", "999999999999d"])(
    "%j is refused",
    async (text) => {
      const reply = await post(`/v2/publish/${first}`, window(text));
      expect(reply).toMatchObject({
        status: 400,
        body: { error: expect.stringContaining(`${brand}-deduplication-window: `) },
      });
      expect(server.deliveries).toEqual([]);
    },
  );

  test("is refused without a deduplication id or content-based deduplication", async () => {
    const alone = { [`${brand}-deduplication-window`]: "1h" };
    const said = expect.stringMatching(
      /^(svc|upstash)-deduplication-window: requires Deduplication-Id or Content-Based-Deduplication/,
    );
    expect(await post(`/v2/publish/${first}`, alone)).toMatchObject({ status: 400, body: { error: said } });
    expect(await post(`/v2/publish/${first}?${Object.keys(alone)[0]}=1h`)).toMatchObject({
      status: 400,
      body: { error: said },
    });
    expect(await post(`/v2/trigger/${first}`, alone)).toMatchObject({ status: 400, body: { error: said } });
    const body = JSON.stringify([{ destination: first, headers: alone }]);
    expect(await post("/v2/batch", {}, { body })).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("requires Dedup") },
    });
  });
});

test("the window of a source applies to the events of its sender", async () => {
  const verification = { scheme: "github", secret: "secret" };
  const settings = { "Svc-Deduplication-Window": "1h" };
  const made = await server.ask("POST", "/v2/sources", {
    body: JSON.stringify({ destination: first, verification, settings }),
  });
  expect(made).toMatchObject({ status: 201 });
  const { createHmac } = await import("node:crypto");
  const signature = `sha256=${createHmac("sha256", "secret").update("{}").digest("hex")}`;
  const headers = { "x-hub-signature-256": signature, "x-github-delivery": "one", "x-github-event": "push" };
  const { pathname } = new URL(made.body.url);
  const call = async () => (await server.ask("POST", pathname, { token: null, headers, body: "{}" })).status;
  expect(await call()).toBe(200);
  server.clock.now += 60 * minute - 1;
  expect(await call()).toBe(202);
  server.clock.now += 1;
  expect(await call()).toBe(200);
});
