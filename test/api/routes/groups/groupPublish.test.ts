import { describe, expect, test } from "vitest";
import { createTestServer, token } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";
import { a, add, b, serverWith, json, patch, published } from "./groupRequests.ts";

describe("a publish to a URL group", () => {
  test("has a result for each endpoint, and the messages show the group and the endpoint", async () => {
    const server = await serverWith();
    const reply = await server.ask("POST", "/v2/publish/orders", { body: "x" });
    const [first, second] = published(server);
    expect(reply).toMatchObject({ status: 200 });
    expect(reply.body).toEqual([
      { messageId: first?.id, url: a },
      { messageId: second?.id, url: b },
    ]);
    const one = (await server.ask("GET", `/v2/messages/${first?.id}`)).body;
    expect(one).toMatchObject({ url: a, topicName: "orders", endpointName: "first", body: "x" });
    const other = (await server.ask("GET", `/v2/messages/${second?.id}`)).body;
    expect(other).toMatchObject({ url: b, topicName: "orders" });
    expect(other).not.toHaveProperty("endpointName");
    const { events } = (await server.ask("GET", `/v2/events?messageId=${first?.id}`)).body;
    expect(events[0]).toMatchObject({ topicName: "orders", endpointName: "first" });
  });

  test("reports duplicates per endpoint, and has status 202 if all are duplicates", async () => {
    const server = await serverWith({}, [{ url: a }]);
    const headers = { "svc-content-based-deduplication": "true" };
    const post = () => server.ask("POST", "/v2/publish/orders", { headers, body: "x" });
    const [{ messageId }] = (await post()).body;
    expect(await post()).toMatchObject({ status: 202, body: [{ messageId, url: a, deduplicated: true }] });
    await add(server, [{ url: b }]);
    const third = await post();
    expect(third.status).toBe(200);
    expect(third.body).toEqual([
      { messageId, url: a, deduplicated: true },
      { messageId: expect.stringMatching(/^msg_/), url: b },
    ]);
  });

  test("that exceeds a limit is stored for no endpoint", async () => {
    const server = await serverWith();
    const error = "retries: 1001 exceeds the limit of 1000";
    expect(
      await server.ask("POST", "/v2/publish/orders", { headers: { "svc-retries": "1001" } }),
    ).toMatchObject({
      status: 412,
      body: { error },
    });
    expect(server.deliveries).toEqual([]);
  });

  test("has status 404 if the group is deleted while the request is read", async () => {
    const server = await createTestServer({
      wrap: (store) => ({
        ...store,
        execute: async (name, input, haste) => {
          if (name === "publish") await store.execute("deleteGroup", { account: "acc_1", name: "orders" });
          return store.execute(name, input, haste);
        },
      }),
    });
    await add(server, [{ url: a }]);
    const error = "destination: topic orders not found, or this URL group has no endpoints";
    expect(await server.ask("POST", "/v2/publish/orders")).toMatchObject({ status: 404, body: { error } });
  });

  test.each(["svc", "upstash"] as const)(
    "sends its query to every endpoint, without settings and the token: %s",
    async (brand) => {
      const server = await serverWith({}, [
        { url: a },
        { url: b },
        { url: "https://c.example#top" },
        { url: "https://d.example/?" },
      ]);
      const own = { svc: "svc_token", upstash: "qstash_token" }[brand];
      const query =
        `?hub.challenge=1&${own}=${encodeURIComponent(token)}&retries=3&` +
        `${brand}-retries=2&hub.challenge=%zz+`;
      const reply = await server.ask("POST", `/v2/publish/orders${query}`, { token: null });
      const urls = [
        "https://a.example/x?hub.challenge=1&retries=3&hub.challenge=%zz+",
        "https://b.example/y?z=1&hub.challenge=1&retries=3&hub.challenge=%zz+",
        "https://c.example?hub.challenge=1&retries=3&hub.challenge=%zz+#top",
        "https://d.example/?hub.challenge=1&retries=3&hub.challenge=%zz+",
      ];
      expect(reply.body.map(({ url }: { url: string }) => url)).toEqual(urls);
      expect(published(server).map((message) => [message.url, message.retries, message.brand])).toEqual(
        urls.map((url) => [url, 2, brand]),
      );
      const { events } = (await server.ask("GET", `/v2/logs?messageId=${reply.body[1].messageId}`)).body;
      expect(events[0]).toMatchObject({ url: urls[1], topicName: "orders" });
    },
  );

  test("sends its query to every endpoint, also through a queue", async () => {
    const server = await serverWith();
    const { body } = await server.ask("POST", "/v2/enqueue/q/orders?x=1");
    expect(body).toMatchObject([{ url: `${a}?x=1` }, { url: `${b}&x=1` }]);
    expect(published(server)).toMatchObject([{ url: `${a}?x=1`, queue: "q" }]);
  });

  test("with another query is not a duplicate, unless its deduplication id is the same", async () => {
    const server = await serverWith({}, [{ url: a }]);
    const post = async (query: string, headers: Record<string, string>) =>
      (await server.ask("POST", `/v2/publish/orders${query}`, { headers })).status;
    const byContent = { "svc-content-based-deduplication": "true" };
    expect([
      await post("?x=1", byContent),
      await post("?x=2", byContent),
      await post("?x=1", byContent),
    ]).toEqual([200, 200, 202]);
    const byId = { "svc-deduplication-id": "1" };
    expect([await post("?x=1", byId), await post("?x=2", byId), await post("", byId)]).toEqual([
      200, 202, 202,
    ]);
  });

  test("is refused if the query makes an endpoint's URL too long, or the group is unknown", async () => {
    const server = await serverWith({}, [{ url: a }, { url: "https://longer.example/" }]);
    const room = 16_384 - "https://longer.example/?".length;
    const error =
      "destination: the query is too long for an endpoint of the URL group orders: its URL would have " +
      "16385 characters, the limit is 16384";
    expect(await server.ask("POST", `/v2/publish/orders?${"x".repeat(room + 1)}`)).toMatchObject({
      status: 400,
      body: { error },
    });
    expect(server.deliveries).toEqual([]);
    expect((await server.ask("POST", `/v2/publish/orders?${"x".repeat(room)}`)).status).toBe(200);
    expect((await server.ask("POST", "/v2/publish/nobody?x=1")).status).toBe(404);
  });

  test("with an empty query does not change the URLs", async () => {
    const server = await serverWith({}, [{ url: a }]);
    expect((await server.ask("POST", "/v2/publish/orders?")).body).toMatchObject([{ url: a }]);
    expect((await server.ask("POST", "/v2/publish/orders?svc-retries=1")).body).toMatchObject([{ url: a }]);
  });

  test("requires a token whose rights cover every URL, query included", async () => {
    const server = await serverWith({}, [{ url: a }]);
    const tokenFor = async (destinations: string[]): Promise<string> => {
      const asked = { name: destinations.join(), verbs: ["publish"], destinations };
      return (await server.ask("POST", "/v2/tokens", json(asked))).body.token;
    };
    const status = async (destinations: string[]) =>
      (await server.ask("POST", "/v2/publish/orders?x=1", { token: await tokenFor(destinations) })).status;
    expect([await status([a]), await status([`${a}*`]), await status(["group:orders"])]).toEqual([
      403, 200, 200,
    ]);
  });

  test("without a brand has the brand of the group's default headers", async () => {
    for (const [name, brand] of [
      ["Upstash-Retries", "upstash"],
      ["Svc-Retries", "svc"],
    ] as const)
      for (const ofServer of ["svc", "upstash"] as const) {
        const server = await createTestServer({ brand: ofServer });
        await add(server, [{ url: a }]);
        const post = async (headers: Record<string, string> = {}, query = "") => {
          await server.ask("POST", `/v2/publish/orders${query}`, { headers });
          return server.deliveries.at(-1)?.message.brand;
        };
        expect(await post()).toBe(ofServer);
        await patch(server, { [name]: "1" });
        expect(await post()).toBe(brand);
        expect(await post({ "svc-delay": "0s" })).toBe("svc");
        expect(await post({ "upstash-delay": "0s" })).toBe("upstash");
        expect(await post({}, `?svc_token=${encodeURIComponent(token)}`)).toBe("svc");
      }
  });

  test("is refused if the body is too large for all endpoints together", async () => {
    const endpoints = Array.from({ length: 100 }, (_, at) => ({ url: `https://e${at}.example` }));
    const server = await serverWith({}, endpoints);
    const bytes = Math.floor((256 * 1024 * 1024) / 100);
    const error =
      `body: ${bytes + 1} bytes for each of the 100 endpoints of orders, the limit is ` +
      "268435456 in total per request";
    expect(await server.ask("POST", "/v2/publish/orders", { body: Buffer.alloc(bytes + 1) })).toMatchObject({
      status: 413,
      body: { error },
    });
    expect(server.deliveries).toEqual([]);
    expect((await server.ask("POST", "/v2/publish/orders", { body: "small" })).body).toHaveLength(100);
  });
});

describe("a batch with URL groups", () => {
  const batch = (server: TestServer, items: unknown) =>
    server.ask("POST", "/v2/batch", { body: JSON.stringify(items) });

  test("sends the query of an item to every endpoint, without settings and tokens", async () => {
    const server = await serverWith();
    const secret = encodeURIComponent(token);
    const { body } = await batch(server, [
      {
        destination: `orders?x=1&svc_token=${secret}&qstash_token=${secret}#y`,
        headers: { "Svc-Retries": "1" },
      },
      { destination: "orders?upstash-retries=2&x=é", headers: { "content-type": "text/plain" } },
      { destination: "orders?x=\n" },
      { destination: `orders?${"x".repeat(20_000)}` },
      { destination: "orders#x" },
    ]);
    expect(body.slice(0, 2)).toMatchObject([
      [{ url: `${a}?x=1` }, { url: `${b}&x=1` }],
      [{ url: `${a}?x=é` }, { url: `${b}&x=é` }],
    ]);
    expect(body.slice(2)).toMatchObject([
      { error: "destination: the query has control characters, or ends with a space; encode them" },
      { error: expect.stringMatching(/^destination: the query is too long for an endpoint/) },
      { error: expect.stringMatching(/^destination: "orders#x" is not an http:\/\/ or https:\/\/ URL/) },
    ]);
    expect(published(server).map(({ retries, brand }) => [retries, brand])).toEqual([
      [1, "svc"],
      [1, "svc"],
      [2, "upstash"],
      [2, "upstash"],
    ]);
    expect(JSON.stringify([...server.memory.tables.storedMessages.values()])).not.toContain(secret);
  });

  test("takes the brand of the item, else of the request, else of the group", async () => {
    const server = await serverWith({ "Upstash-Retries": "1" }, [{ url: a }]);
    const items = [
      { destination: "orders" },
      { destination: "orders", headers: { "Svc-Delay": "0s" } },
      { destination: a },
    ];
    await batch(server, items);
    await server.ask("POST", `/v2/batch?svc_token=${encodeURIComponent(token)}`, {
      body: JSON.stringify(items),
      token: null,
    });
    expect(published(server).map(({ brand }) => brand)).toEqual([
      "upstash",
      "svc",
      "svc",
      "svc",
      "svc",
      "svc",
    ]);
    const { body } = await batch(server, [
      { destination: "orders", extra: 1 },
      { destination: a, extra: 1 },
    ]);
    expect(body).toMatchObject([[{ url: a }], { error: expect.stringMatching(/^extra: /) }]);
  });

  test("has a list as the result of a group, whose default headers yield to those of the item", async () => {
    const server = await serverWith({ "Svc-Retries": "7", "Svc-Forward-X": "g" });
    const reply = await batch(server, [
      { destination: "orders", headers: { "upstash-retries": "2" } },
      { destination: "https://c.example" },
      { destination: "orders", queue: "q", headers: { "svc-forward-x": "i" } },
      { destination: "nothing" },
    ]);
    const messages = published(server);
    expect(reply.body).toEqual([
      [
        { messageId: messages[0]?.id, url: a },
        { messageId: messages[1]?.id, url: b },
      ],
      { messageId: messages[2]?.id, url: "https://c.example" },
      [
        { messageId: messages[3]?.id, url: a },
        { messageId: expect.stringMatching(/^msg_/), url: b },
      ],
      {
        error: "destination: topic nothing not found; use an existing URL group or a URL",
        code: "not-found",
      },
    ]);
    expect(messages.map(({ retries }) => retries)).toEqual([2, 2, 3, 7]);
    expect(messages.map(({ headers }) => headers)).toEqual([[["X", "g"]], [["X", "g"]], [], [["X", "i"]]]);
    // The queue sends one message at a time, so the other one waits.
    const waiting = (await server.ask("GET", `/v2/messages/${reply.body[2][1].messageId}`)).body;
    expect(waiting).toMatchObject({ queueName: "q", topicName: "orders" });
  });

  test("creates at most 10,000 messages", async () => {
    const server = await serverWith(
      {},
      Array.from({ length: 100 }, (_, at) => ({ url: `https://e${at}.example` })),
    );
    const { body } = await batch(
      server,
      Array.from({ length: 102 }, () => ({ destination: "orders" })),
    );
    const error =
      "destination: a message for each of the 100 endpoints of orders, the limit is 10000 per request; " +
      "split the request";
    expect(body.slice(0, 100).every((one: unknown) => Array.isArray(one) && one.length === 100)).toBe(true);
    expect(body.slice(100)).toEqual([
      { error, code: "limit-exceeded" },
      { error, code: "limit-exceeded" },
    ]);
    expect(server.deliveries).toHaveLength(10_000);
  });
});
