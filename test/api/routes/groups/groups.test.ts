import { describe, expect, test } from "vitest";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import { a, add, b, serverWith, json, path, published } from "./groupRequests.ts";

describe("a URL group", () => {
  test("is created, listed, read, and deleted with its last endpoint", async () => {
    const server = await createTestServer();
    const { ask, clock } = server;
    expect((await ask("GET", "/v2/topics")).body).toEqual([]);
    const made = await add(server, [{ name: "first", url: a }, { url: b }]);
    const group = {
      name: "orders",
      createdAt: testTime,
      updatedAt: testTime,
      endpoints: [{ name: "first", url: a }, { url: b }],
    };
    expect(made).toMatchObject({ status: 200, body: group });
    expect((await ask("GET", "/v2/topics")).body).toEqual([group]);
    expect((await ask("GET", path)).body).toEqual(group);
    clock.now += 10;
    expect(await ask("DELETE", `${path}/endpoints`, json({ endpoints: [{ name: "first" }] }))).toMatchObject({
      status: 200,
      body: { removed: 1 },
    });
    expect((await ask("GET", path)).body).toEqual({
      ...group,
      updatedAt: testTime + 10,
      endpoints: [{ url: b }],
    });
    expect((await ask("DELETE", `${path}/endpoints`, json({ endpoints: [{ url: b }] }))).status).toBe(200);
    expect(await ask("GET", path)).toMatchObject({
      status: 404,
      body: { error: "name: there is no URL group orders" },
    });
    expect((await ask("GET", "/v2/topics")).body).toEqual([]);
  });

  test("is listed first if it was changed last", async () => {
    const { ask, clock } = await createTestServer();
    for (const name of ["b", "a", "c"]) {
      clock.now += 1;
      await ask("POST", `/v2/topics/${name}/endpoints`, json({ endpoints: [{ url: a }] }));
    }
    expect((await ask("GET", "/v2/topics")).body.map(({ name }: { name: string }) => name)).toEqual([
      "c",
      "a",
      "b",
    ]);
  });

  test("can be deleted, also if it does not exist", async () => {
    const server = await serverWith();
    expect(await server.ask("DELETE", path)).toMatchObject({ status: 200, body: { deleted: 1 } });
    expect(await server.ask("DELETE", path)).toMatchObject({ status: 200, body: { deleted: 0 } });
    expect((await server.ask("POST", "/v2/publish/orders")).status).toBe(404);
  });

  test("belongs to one account; another account may have one of the same name", async () => {
    const server = await serverWith({ "Svc-Retries": "1" });
    const other = { token: otherToken };
    expect((await server.ask("GET", path, other)).status).toBe(404);
    expect((await server.ask("POST", "/v2/publish/orders", other)).status).toBe(404);
    await add(server, [{ url: "https://other.example" }], other);
    expect((await server.ask("GET", path, other)).body).not.toHaveProperty("headers");
    await server.ask("POST", "/v2/publish/orders", other);
    expect(published(server)).toMatchObject([{ account: "acc_2", url: "https://other.example", retries: 3 }]);
    await server.ask("DELETE", path, other);
    expect((await server.ask("GET", path)).body.endpoints).toHaveLength(2);
  });

  test.each(["__proto__", "constructor", "toString", "...", "-", "A_b.c-1", "x".repeat(512)])(
    "may be called %.20s",
    async (name) => {
      const { ask, deliveries } = await createTestServer();
      const encoded = name.replaceAll(".", "%2E");
      expect((await ask("GET", `/v2/topics/${encoded}`)).status).toBe(404);
      expect(
        await ask(
          "POST",
          `/v2/topics/${encoded}/endpoints`,
          json({ endpoints: [{ name: "__proto__", url: a }] }),
        ),
      ).toMatchObject({
        status: 200,
        body: { name, endpoints: [{ name: "__proto__", url: a }] },
      });
      expect((await ask("POST", `/v2/publish/${encoded}`)).status).toBe(200);
      expect(deliveries.map(({ message }) => [message.group, message.endpoint])).toEqual([
        [name, "__proto__"],
      ]);
    },
  );

  test.each(["a b", "a/b", "https://a.example", "\u00e4", "x".repeat(513), "\u0000", "a:b"])(
    "cannot be called %.20s",
    async (name) => {
      const { ask } = await createTestServer();
      const encoded = encodeURIComponent(name);
      const error = expect.stringMatching(/^name: ".*" is not a valid name; use at most 512/);
      expect(
        await ask("POST", `/v2/topics/${encoded}/endpoints`, json({ endpoints: [{ url: a }] })),
      ).toMatchObject({
        status: 400,
        body: { error },
      });
      for (const method of ["GET", "DELETE"])
        expect(await ask(method, `/v2/topics/${encoded}`)).toMatchObject({ status: 400, body: { error } });
    },
  );

  test.each([".", ".."])("cannot be called %s, which no client can put into a path", async (name) => {
    const { ask } = await createTestServer();
    const reply = await ask("POST", "/v2/batch", { body: JSON.stringify([{ destination: name }]) });
    expect(reply).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(/^message 1 of 1: destination: "\.+" is not an http:/) },
    });
  });

  test("is refused beyond 1,000 groups, while existing groups can still be changed", async () => {
    const server = await createTestServer();
    const make = (name: string) =>
      server.store.execute("addEndpoints", { account: "acc_1", name, endpoints: [{ name: null, url: a }] });
    for (let at = 0; at < 999; at++) await make(`g${at}`);
    await make("orders");
    const error = "groups: there are 1000, and the limit is 1000; delete some that are not needed";
    expect(
      await server.ask("POST", "/v2/topics/more/endpoints", json({ endpoints: [{ url: a }] })),
    ).toMatchObject({
      status: 412,
      body: { error },
    });
    expect((await add(server, [{ url: b }])).status).toBe(200);
    expect((await server.ask("GET", "/v2/topics")).body).toHaveLength(1000);
  });
});

describe("the endpoints of a request", () => {
  const wrong: [body: string, error: string][] = [
    ["", "body: missing; give a JSON object"],
    ["[]", "body: is not a JSON object"],
    ["{}", "endpoints: is missing or not a list"],
    ['{"endpoints":[]}', "endpoints: is empty"],
    ['{"endpoints":[1]}', "endpoints.0: is not a JSON object"],
    ['{"endpoints":[{"url":"https://a.example","uri":1}]}', "endpoints.0.uri: unknown field"],
    ['{"endpoints":[{"url":1}]}', "endpoints.0.url: is"],
    ['{"endpoints":[{"name":1,"url":"https://a.example"}]}', "endpoints.0.name: is not a string"],
    ['{"endpoints":[{"url":"https://a.example"}],"name":"x"}', "name: unknown field"],
  ];

  test.each([...wrong, ['{"endpoints":[{"name":"x"}]}', "endpoints.0.url: is missing"]])(
    "%s are not added",
    async (body, error) => {
      const { ask } = await createTestServer();
      const reply = await ask("POST", `${path}/endpoints`, { body });
      expect(reply.status).toBe(400);
      expect(reply.body.error.slice(0, error.length)).toBe(error);
      expect((await ask("GET", "/v2/topics")).body).toEqual([]);
    },
  );

  test.each([...wrong, ['{"endpoints":[{}]}', "endpoints.0: requires name or url; give one of them"]])(
    "%s are not removed",
    async (body, error) => {
      const server = await serverWith();
      const reply = await server.ask("DELETE", `${path}/endpoints`, { body });
      expect(reply.status).toBe(400);
      expect(reply.body.error.slice(0, error.length)).toBe(error);
    },
  );

  test.each([
    ["ftp://a.example", 'endpoints.1.url: "ftp://a.example" is not an http:// or https:// URL'],
    ["orders", 'endpoints.1.url: "orders" is not an http:// or https:// URL'],
    ["https://", 'endpoints.1.url: "https://" is not a valid URL'],
    ["https://a.example/\n", 'endpoints.1.url: "https://a.example/\\n" is not a valid URL'],
  ])("must be http or https URLs, not %j", async (url, error) => {
    const server = await createTestServer();
    expect(await add(server, [{ url: a }, { url }])).toMatchObject({ status: 400, body: { error } });
    expect((await server.ask("GET", path)).status).toBe(404);
  });

  test.each(["First endpoint", "a/b?c#d", "é日\u{1f600}", " ", "..", "Ã©", "x".repeat(512)])(
    "may be called %.20s",
    async (name) => {
      const server = await createTestServer();
      expect((await add(server, [{ url: a, name }])).body.endpoints).toEqual([{ name, url: a }]);
      expect((await add(server, [{ url: b, name }])).body.endpoints).toEqual([{ name, url: b }]);
      const [{ messageId }] = (await server.ask("POST", "/v2/publish/orders")).body;
      expect((await server.ask("GET", `/v2/messages/${messageId}`)).body).toMatchObject({
        url: b,
        endpointName: name,
      });
      expect((await server.ask("DELETE", `${path}/endpoints`, json({ endpoints: [{ name }] }))).body).toEqual(
        {
          removed: 1,
        },
      );
    },
  );

  test("have names that every database keeps unchanged, or none", async () => {
    const server = await createTestServer();
    for (const name of ["a\nb", "\u0000", "\ud800", "x".repeat(513)])
      expect(await add(server, [{ url: a, name }])).toMatchObject({
        status: 400,
        body: {
          error: expect.stringMatching(
            new RegExp(
              '^endpoints\\.0\\.name: ".*" is not a valid name; ' +
                "use 1 to 512 characters without control characters$",
              "s",
            ),
          ),
        },
      });
    expect((await add(server, [{ url: a, name: "" }])).body.endpoints).toEqual([{ url: a }]);
  });

  test("are limited to 100 per group, and 10,000 in one request are refused at once", async () => {
    const server = await serverWith();
    const many = (count: number) =>
      Array.from({ length: count }, (_, at) => ({ url: `https://e${at}.example` }));
    expect(await add(server, many(10_000))).toMatchObject({
      status: 412,
      body: { error: "endpoints: 10000 in one request exceeds the limit of 100" },
    });
    expect(await add(server, many(99))).toMatchObject({
      status: 412,
      body: { error: "endpoints: 101 in the URL group orders exceeds the limit of 100" },
    });
    expect((await server.ask("GET", path)).body.endpoints).toHaveLength(2);
  });
});
