import { hash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

const [a, b] = ["https://a.example/x", "https://b.example/y?z=1"] as const;
const path = "/v2/topics/orders";
const json = (body: unknown) => ({ body: JSON.stringify(body) });
const add = ({ ask }: TestServer, endpoints: unknown, more: { token?: string } = {}) =>
  ask("POST", `${path}/endpoints`, { ...json({ endpoints }), ...more });
const patch = ({ ask }: TestServer, headers: unknown) => ask("PATCH", path, json({ headers }));

async function homeWith(
  headers: Record<string, string | string[]> = {},
  endpoints: unknown = [{ url: a, name: "first" }, { url: b }],
): Promise<TestServer> {
  const home = await createTestServer();
  expect((await add(home, endpoints)).status).toBe(200);
  if (Object.keys(headers).length > 0) expect((await patch(home, headers)).status).toBe(200);
  return home;
}

const published = (home: TestServer) => home.deliveries.map(({ message }) => message);

describe("a URL group", () => {
  test("is made, listed, read, and goes with its last endpoint", async () => {
    const home = await createTestServer();
    const { ask, clock } = home;
    expect((await ask("GET", "/v2/topics")).body).toEqual([]);
    const made = await add(home, [{ name: "first", url: a }, { url: b }]);
    const group = { name: "orders", createdAt: testTime, updatedAt: testTime, endpoints: [{ name: "first", url: a }, { url: b }] };
    expect(made).toMatchObject({ status: 200, body: group });
    expect((await ask("GET", "/v2/topics")).body).toEqual([group]);
    expect((await ask("GET", path)).body).toEqual(group);
    clock.now += 10;
    expect(await ask("DELETE", `${path}/endpoints`, json({ endpoints: [{ name: "first" }] }))).toMatchObject({
      status: 200,
      body: { removed: 1 },
    });
    expect((await ask("GET", path)).body).toEqual({ ...group, updatedAt: testTime + 10, endpoints: [{ url: b }] });
    expect((await ask("DELETE", `${path}/endpoints`, json({ endpoints: [{ url: b }] }))).status).toBe(200);
    expect(await ask("GET", path)).toMatchObject({ status: 404, body: { error: "name: there is no URL group orders" } });
    expect((await ask("GET", "/v2/topics")).body).toEqual([]);
  });

  test("that was changed last is listed first", async () => {
    const { ask, clock } = await createTestServer();
    for (const name of ["b", "a", "c"]) {
      clock.now += 1;
      await ask("POST", `/v2/topics/${name}/endpoints`, json({ endpoints: [{ url: a }] }));
    }
    expect((await ask("GET", "/v2/topics")).body.map(({ name }: { name: string }) => name)).toEqual(["c", "a", "b"]);
  });

  test("is deleted, also when there is none", async () => {
    const home = await homeWith();
    expect(await home.ask("DELETE", path)).toMatchObject({ status: 200, body: { deleted: 1 } });
    expect(await home.ask("DELETE", path)).toMatchObject({ status: 200, body: { deleted: 0 } });
    expect((await home.ask("POST", "/v2/publish/orders")).status).toBe(404);
  });

  test("of another account is another one", async () => {
    const home = await homeWith({ "Svc-Retries": "1" });
    const other = { token: otherToken };
    expect((await home.ask("GET", path, other)).status).toBe(404);
    expect((await home.ask("POST", "/v2/publish/orders", other)).status).toBe(404);
    await add(home, [{ url: "https://other.example" }], other);
    expect((await home.ask("GET", path, other)).body).not.toHaveProperty("headers");
    await home.ask("POST", "/v2/publish/orders", other);
    expect(published(home)).toMatchObject([{ account: "acc_2", url: "https://other.example", retries: 3 }]);
    await home.ask("DELETE", path, other);
    expect((await home.ask("GET", path)).body.endpoints).toHaveLength(2);
  });

  test.each(["__proto__", "constructor", "toString", "...", "-", "A_b.c-1", "x".repeat(512)])("may be called %.20s", async (name) => {
    const { ask, deliveries } = await createTestServer();
    const encoded = name.replaceAll(".", "%2E");
    expect((await ask("GET", `/v2/topics/${encoded}`)).status).toBe(404);
    expect(await ask("POST", `/v2/topics/${encoded}/endpoints`, json({ endpoints: [{ name: "__proto__", url: a }] }))).toMatchObject({
      status: 200,
      body: { name, endpoints: [{ name: "__proto__", url: a }] },
    });
    expect((await ask("POST", `/v2/publish/${encoded}`)).status).toBe(200);
    expect(deliveries.map(({ message }) => [message.group, message.endpoint])).toEqual([[name, "__proto__"]]);
  });

  test.each(["a b", "a/b", "https://a.example", "\u00e4", "x".repeat(513), "\u0000", "a:b"])("cannot be called %.20s", async (name) => {
    const { ask } = await createTestServer();
    const encoded = encodeURIComponent(name);
    const error = expect.stringMatching(/^name: ".*" is no name; letters, digits/);
    expect(await ask("POST", `/v2/topics/${encoded}/endpoints`, json({ endpoints: [{ url: a }] }))).toMatchObject({
      status: 400,
      body: { error },
    });
    for (const method of ["GET", "DELETE"])
      expect(await ask(method, `/v2/topics/${encoded}`)).toMatchObject({ status: 400, body: { error } });
  });

  test.each([".", ".."])("cannot be called %s, which no client could ask for", async (name) => {
    const { ask } = await createTestServer();
    const reply = await ask("POST", "/v2/batch", { body: JSON.stringify([{ destination: name }]) });
    expect(reply).toMatchObject({ status: 400, body: { error: expect.stringMatching(/^message 1 of 1: destination: "\.+" is neither/) } });
  });

  test("cannot be more than a thousand; those that are there can still be changed", async () => {
    const home = await createTestServer();
    const make = (name: string) => home.store.execute("addEndpoints", { account: "acc_1", name, endpoints: [{ name: null, url: a }] });
    for (let at = 0; at < 999; at++) await make(`g${at}`);
    await make("orders");
    const error = "groups: there are 1000, and the limit is 1000; delete some that are not needed";
    expect(await home.ask("POST", "/v2/topics/more/endpoints", json({ endpoints: [{ url: a }] }))).toMatchObject({
      status: 412,
      body: { error },
    });
    expect((await add(home, [{ url: b }])).status).toBe(200);
    expect((await home.ask("GET", "/v2/topics")).body).toHaveLength(1000);
  });
});

describe("the endpoints of a request", () => {
  const wrong: [body: string, error: string][] = [
    ["", "body: missing; give a JSON object"],
    ["[]", "body: is not a JSON object"],
    ["{}", "endpoints: is missing, or not a list"],
    ['{"endpoints":[]}', "endpoints: is empty"],
    ['{"endpoints":[1]}', "endpoints.0: is not a JSON object"],
    ['{"endpoints":[{"url":"https://a.example","uri":1}]}', "endpoints.0.uri: there is no such field"],
    ['{"endpoints":[{"url":1}]}', "endpoints.0.url: is"],
    ['{"endpoints":[{"name":1,"url":"https://a.example"}]}', "endpoints.0.name: is not a text"],
    ['{"endpoints":[{"url":"https://a.example"}],"name":"x"}', "name: there is no such field"],
  ];

  test.each([...wrong, ['{"endpoints":[{"name":"x"}]}', "endpoints.0.url: is missing"]])("%s are not added", async (body, error) => {
    const { ask } = await createTestServer();
    const reply = await ask("POST", `${path}/endpoints`, { body });
    expect(reply.status).toBe(400);
    expect(reply.body.error.slice(0, error.length)).toBe(error);
    expect((await ask("GET", "/v2/topics")).body).toEqual([]);
  });

  test.each([...wrong, ['{"endpoints":[{}]}', "endpoints.0: has neither name nor url; give one of them"]])(
    "%s are not removed",
    async (body, error) => {
      const home = await homeWith();
      const reply = await home.ask("DELETE", `${path}/endpoints`, { body });
      expect(reply.status).toBe(400);
      expect(reply.body.error.slice(0, error.length)).toBe(error);
    },
  );

  test.each([
    ["ftp://a.example", 'endpoints.1.url: "ftp://a.example" is not a URL with http:// or https://'],
    ["orders", 'endpoints.1.url: "orders" is not a URL with http:// or https://'],
    ["https://", 'endpoints.1.url: "https://" is not a valid URL'],
    ["https://a.example/\n", 'endpoints.1.url: "https://a.example/\\n" is not a valid URL'],
  ])("are URLs that can be called, not %j", async (url, error) => {
    const home = await createTestServer();
    expect(await add(home, [{ url: a }, { url }])).toMatchObject({ status: 400, body: { error } });
    expect((await home.ask("GET", path)).status).toBe(404);
  });

  test.each(["First endpoint", "a/b?c#d", "é日\u{1f600}", " ", "..", "Ã©", "x".repeat(512)])("may be called %.20s", async (name) => {
    const home = await createTestServer();
    expect((await add(home, [{ url: a, name }])).body.endpoints).toEqual([{ name, url: a }]);
    expect((await add(home, [{ url: b, name }])).body.endpoints).toEqual([{ name, url: b }]);
    const [{ messageId }] = (await home.ask("POST", "/v2/publish/orders")).body;
    expect((await home.ask("GET", `/v2/messages/${messageId}`)).body).toMatchObject({ url: b, endpointName: name });
    expect((await home.ask("DELETE", `${path}/endpoints`, json({ endpoints: [{ name }] }))).body).toEqual({ removed: 1 });
  });

  test("have names that every database keeps as they are, or none", async () => {
    const home = await createTestServer();
    for (const name of ["a\nb", "\u0000", "\ud800", "x".repeat(513)])
      expect(await add(home, [{ url: a, name }])).toMatchObject({
        status: 400,
        body: {
          error: expect.stringMatching(
            /^endpoints\.0\.name: ".*" is not possible; 1 to 512 characters, none of them a control character$/s,
          ),
        },
      });
    expect((await add(home, [{ url: a, name: "" }])).body.endpoints).toEqual([{ url: a }]);
  });

  test("are a hundred at most, and a refusal of ten thousand costs nothing", async () => {
    const home = await homeWith();
    const many = (count: number) => Array.from({ length: count }, (_, at) => ({ url: `https://e${at}.example` }));
    expect(await add(home, many(10_000))).toMatchObject({
      status: 412,
      body: { error: "endpoints: 10000 in one request, the limit is 100" },
    });
    expect(await add(home, many(99))).toMatchObject({
      status: 412,
      body: { error: "endpoints: 101 in the URL group orders, the limit is 100" },
    });
    expect((await home.ask("GET", path)).body.endpoints).toHaveLength(2);
  });
});

describe("default headers", () => {
  test("are shown as they were given, and replaced as a whole", async () => {
    const home = await homeWith();
    const headers = { "Svc-Header-Forward": ["true"], "upstash-Retries": "3", "Svc-Forward-X-A": ["1", "2"] };
    const shown = { "Svc-Header-Forward": ["true"], "upstash-Retries": ["3"], "Svc-Forward-X-A": ["1", "2"] };
    expect(await patch(home, headers)).toMatchObject({ status: 200, body: { headers: shown, endpoints: [{ url: a }, { url: b }] } });
    expect((await home.ask("GET", path)).body.headers).toEqual(shown);
    await patch(home, { "Svc-Label": "x" });
    expect((await home.ask("GET", "/v2/topics")).body[0].headers).toEqual({ "Svc-Label": ["x"] });
    await patch(home, {});
    expect((await home.ask("GET", path)).body).not.toHaveProperty("headers");
  });

  test("of a group that is not there are refused", async () => {
    const error =
      "name: there is no URL group orders; GET /v2/topics lists those there are, POST /v2/topics/orders/endpoints makes this one";
    expect(await patch(await createTestServer(), { "Svc-Retries": "1" })).toMatchObject({ status: 404, body: { error } });
  });

  test.each<[headers: unknown, status: number, error: string]>([
    [{ "Svc-Retrys": "1" }, 400, "Svc-Retrys: there is no such setting; did you mean Svc-Retries?"],
    [{ "Svc-Retries": "many" }, 400, 'Svc-Retries: "many" is not a whole number of 0 or more'],
    [{ "Svc-Retries": ["1", "2"] }, 400, "Svc-Retries: given twice, with different values; leave one out"],
    [
      { "Svc-Retries": "1", "upstash-retries": "2" },
      400,
      "upstash-retries: given as Svc-Retries too, with different values; leave one out",
    ],
    [{ "Svc-Retries": "1000000" }, 412, "retries: 1000000 asked for, the limit is 1000"],
    [{ "Svc-Delay": "400d" }, 412, "delay: 34560000 seconds asked for, the limit is 31622400"],
    [{ "Svc-Cron": "* * * * *" }, 400, "Svc-Cron: belongs to a schedule; POST /v2/schedules/{destination} makes one"],
    [
      { "Svc-Queue-Name": "q" },
      400,
      "Svc-Queue-Name: belongs to a schedule; POST /v2/enqueue/{queue}/{destination} sends a message through a queue",
    ],
    [{ "Svc-Flow-Control-Key": "k" }, 400, "Svc-Flow-Control-Key: has no Flow-Control-Value beside it; give one such as parallelism=10"],
    [{ "Svc-Callback-Retries": "1" }, 400, "Svc-Callback-Retries: there is no Svc-Callback with a URL that it could apply to"],
    [{ "Svc-Forward-A": "1\r\nB: 2" }, 400, "Svc-Forward-A: the value has characters that an HTTP header cannot carry"],
    [{ "X-Own": "1" }, 400, "headers.X-Own: is no setting; Svc-Forward-X-Own has a header delivered"],
    [{ "Svc-Retries": 3 }, 400, "headers.Svc-Retries: is neither a text nor a list of texts"],
    [{ "Svc-Retries": [3] }, 400, "headers.Svc-Retries"],
    [["Svc-Retries"], 400, "headers: is missing, or not an object"],
    [{ "Svc-Forward-A": "x".repeat(65_536) }, 412, "headers: 65549 characters of names and values, the limit is 65536"],
  ])("%.60j are refused", async (headers, status, error) => {
    const home = await homeWith({ "Svc-Label": "kept" });
    const reply = await patch(home, headers);
    expect(reply.status).toBe(status);
    expect(reply.body.error.slice(0, error.length)).toBe(error);
    expect((await home.ask("GET", path)).body.headers).toEqual({ "Svc-Label": ["kept"] });
  });

  test("of a name that means something to the server itself are refused as well", async () => {
    const home = await homeWith({ "Svc-Label": "kept" });
    const reply = await home.ask("PATCH", path, { body: '{"headers":{"__proto__":["1"]}}' });
    expect(reply).toMatchObject({ status: 400, body: { error: "headers.__proto__: there is no such field" } });
    expect((await home.ask("GET", path)).body.headers).toEqual({ "Svc-Label": ["kept"] });
  });

  test("are hidden where they say so, sent as they are, and not taken back as they are shown", async () => {
    const home = await homeWith({ "Svc-Redact-Fields": "header[Authorization]", "Svc-Forward-Authorization": "Bearer deep" });
    const { headers } = (await home.ask("GET", path)).body;
    expect(headers).toEqual({
      "Svc-Redact-Fields": ["header[Authorization]"],
      "Svc-Forward-Authorization": [`REDACTED:${hash("sha256", "Bearer deep", "hex")}`],
    });
    expect((await home.ask("GET", "/v2/topics")).body).toMatchObject([{ headers }]);
    expect(await patch(home, headers)).toMatchObject({ status: 400, body: { error: expect.stringContaining("give the value itself") } });
    await home.ask("POST", "/v2/publish/orders");
    expect(published(home)[0]?.headers).toEqual([["Authorization", "Bearer deep"]]);
  });

  test("of the other brand that are unknown are left out, and named", async () => {
    const home = await homeWith();
    const reply = await patch(home, { "Upstash-New": "1", "Upstash-Retries": "2" });
    expect(reply).toMatchObject({
      status: 200,
      headers: { "waypost-ignored": "upstash-new" },
      body: { headers: { "Upstash-Retries": ["2"] } },
    });
    const sent = await home.ask("POST", "/v2/publish/orders");
    expect(sent.headers).not.toHaveProperty("waypost-ignored");
  });

  test("apply to every request, unless it says otherwise, name by name", async () => {
    const home = await homeWith({
      "Svc-Retries": "7",
      "Svc-Timeout": "5s",
      "Svc-Method": "PUT",
      "Svc-Label": "group",
      "Svc-Forward-X-A": ["g1", "g2"],
      "Svc-Forward-X-B": "g",
      "Svc-Callback": "https://c.example",
      "Svc-Callback-Retries": "4",
    });
    await home.ask("POST", "/v2/publish/orders?svc-timeout=6s&svc-method=PATCH", {
      headers: { "upstash-method": "GET", "svc-forward-x-a": "own", "svc-callback": "https://own.example" },
      body: "x",
    });
    const [message, second] = published(home);
    expect(second).toMatchObject({ url: b, retries: 7 });
    expect(message).toMatchObject({
      retries: 7,
      timeout: 6_000,
      method: "GET",
      labels: ["group"],
      callback: { url: "https://own.example", retries: 4 },
    });
    expect(message?.headers).toEqual([
      ["X-A", "own"],
      ["X-B", "g"],
    ]);
  });

  test("of a callback do not go to a URL that the request gives it", async () => {
    const home = await homeWith({
      "Svc-Callback": "https://c.example",
      "Svc-Callback-Forward-Authorization": "Bearer ours",
      "Svc-Callback-Retries": "4",
      "Svc-Failure-Callback": "https://f.example",
      "Upstash-Failure-Callback-Forward-X": "ours",
      "Svc-Callback-Callback": "https://cc.example",
      "Svc-Callback-Callback-Forward-Y": "ours",
    });
    const publish = async (headers: Record<string, string>) => {
      await home.ask("POST", "/v2/publish/orders", { headers, body: "x" });
      return published(home).at(-1);
    };
    const inner = { url: "https://cc.example", headers: [["Y", "ours"]] };
    const failure = { url: "https://f.example", headers: [["X", "ours"]] };
    expect(await publish({ "svc-callback": "https://own.example", "svc-callback-forward-z": "own" })).toMatchObject({
      callback: { url: "https://own.example", retries: 4, headers: [["Z", "own"]], callback: inner },
      failureCallback: failure,
    });
    const same = { url: "https://c.example", retries: 4, headers: [["Authorization", "Bearer ours"]], callback: inner };
    expect(await publish({ "svc-callback": "https://c.example" })).toMatchObject({ callback: same, failureCallback: failure });
    expect(await publish({ "svc-failure-callback": "https://own.example", "svc-callback-callback": "https://own.example" })).toMatchObject({
      callback: { ...same, callback: { url: "https://own.example", headers: [] } },
      failureCallback: { url: "https://own.example", headers: [] },
    });
  });

  test("of not-before give way to a delay that is asked for", async () => {
    const home = await homeWith({ "Svc-Not-Before": String(testTime / 1000 + 60) });
    const [{ messageId: early }] = (await home.ask("POST", "/v2/publish/orders", { headers: { "svc-delay": "10s" } })).body;
    const [{ messageId: late }] = (await home.ask("POST", "/v2/publish/orders")).body;
    expect((await home.ask("GET", `/v2/messages/${early}`)).body.notBefore).toBe(testTime + 10_000);
    expect((await home.ask("GET", `/v2/messages/${late}`)).body.notBefore).toBe(testTime + 60_000);
  });

  test("have the sender's headers forwarded, except our token", async () => {
    const home = await homeWith({ "Svc-Header-Forward": ["true"] });
    await home.ask("POST", "/v2/publish/orders", { headers: { "x-event": "push" } });
    for (const message of published(home)) {
      expect(message.headers).toContainEqual(["X-Event", "push"]);
      expect(message.headers.map(([name]) => name)).not.toContain("Authorization");
    }
    expect(published(home)).toHaveLength(2);
  });
});
