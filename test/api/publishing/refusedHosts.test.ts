import type { AddressInfo } from "node:net";
import { describe, expect, test } from "vitest";
import { describeRefusal } from "../../../src/api/publishing/refusedHosts.ts";
import { createEgress } from "../../../src/engine/delivery/http/egress.ts";
import type { FindHostRefusal } from "../../../src/engine/core/values/refusedHost.ts";
import { createTestServer, otherToken, token } from "../testServer.ts";
import type { TestServer, Reply } from "../testServer.ts";

const { findHostRefusal: refusedHost } = createEgress({
  allow: ["10.9.0.0/16"],
  resolve: () => expect.unreachable("a publish asks no name server"),
});
const warningOf = ({ headers }: Reply): unknown => headers["waypost-warning"];
const rules = (): Promise<TestServer> => createTestServer({ refusedHost });

const publicOnly = (host: string, allow = host): string =>
  `destination: ${host} is not public and refused: allow with WAYPOST_EGRESS_ALLOW=${allow}`;

test.each([
  ["http://10.0.0.1/", publicOnly("10.0.0.1")],
  ["http://0x7f.1:4000/", publicOnly("127.0.0.1")],
  ["http://2130706433/", publicOnly("127.0.0.1")],
  ["http://127.0.0.1./", publicOnly("127.0.0.1")],
  ["http://[::1]/", publicOnly("[::1]", "::1")],
  ["http://[::ffff:10.0.0.1]/", publicOnly("[::ffff:a00:1]", "10.0.0.1")],
  ["http://localhost:4000/", publicOnly("localhost", "127.0.0.0/8,::1/128")],
  ["http://Shop.LOCALHOST./", publicOnly("shop.localhost.", "127.0.0.0/8,::1/128")],
  ["http://10.9.0.1/", undefined],
  ["http://8.8.8.8/", undefined],
  ["http://shop.example/", undefined],
])("a publish to %s is accepted, with the warning %j", async (url, warning) => {
  const { ask } = await rules();
  const answer = await ask("POST", `/v2/publish/${url}`);
  expect([answer.status, warningOf(answer)]).toEqual([200, warning]);
});

test.each([
  "169.254.169.254",
  "[fe80::1]",
  "[fd00:ec2::254]",
  "[::ffff:169.254.169.254]",
  "[64:ff9b::169.254.169.254]",
  "100.100.100.200",
])("the warning for %s names no setting", async (host) => {
  const { ask } = await rules();
  const { hostname } = new URL(`http://${host}/`);
  const warning = warningOf(await ask("POST", `/v2/publish/http://${host}/`));
  expect(warning).toBe(`destination: ${hostname} is refused, as a link-local or metadata address`);
});

test("a host name is reported as refused after a refused delivery to it", async () => {
  const answers = [["10.0.0.7"], ["8.8.8.8"]];
  const egress = createEgress({ allow: [], resolve: async () => answers.shift() ?? [] });
  const { ask } = await createTestServer({ refusedHost: egress.findHostRefusal });
  const publish = async (): Promise<unknown> =>
    warningOf(await ask("POST", "/v2/publish/http://app.internal/"));
  const connector = egress.connector(10);
  const target = { hostname: "app.internal", host: "app.internal", protocol: "http:", port: "1" };
  const deliver = (): Promise<void> => new Promise((resolve) => connector(target, () => resolve()));
  expect(await publish()).toBeUndefined();
  await deliver();
  expect(await publish()).toBe(
    "destination: app.internal is not public and refused: allow with WAYPOST_EGRESS_ALLOW=app.internal; " +
      "a loopback address needs its own entry",
  );
  await deliver();
  expect(await publish()).toBeUndefined();
});

describe("every request that names destinations", () => {
  const refused = publicOnly("10.0.0.1");

  test.each([
    ["POST", "/v2/enqueue/q/http://10.0.0.1/", undefined, undefined],
    ["POST", "/v2/trigger/http://10.0.0.1/", undefined, undefined],
    ["POST", "/v2/schedules/http://10.0.0.1/", { "Svc-Cron": "* * * * *" }, undefined],
    ["POST", "/v2/publish/http://8.8.8.8/", { "Svc-Callback": "http://10.0.0.1/" }, undefined],
    ["POST", "/v2/publish/http://8.8.8.8/", { "Svc-Failure-Callback": "http://10.0.0.1/" }, undefined],
    [
      "POST",
      "/v2/batch",
      undefined,
      '[{"destination":"http://10.0.0.1/a"},{"destination":"http://10.0.0.1/b"}]',
    ],
    ["POST", "/v2/batch/trigger", undefined, '[{"destination":"http://10.0.0.1/"}]'],
    [
      "POST",
      "/v2/topics/g/endpoints",
      undefined,
      '{"endpoints":[{"url":"http://10.0.0.1/"},{"url":"http://8.8.8.8/"}]}',
    ],
    ["POST", "/v2/sources", undefined, '{"destination":"http://10.0.0.1/"}'],
    [
      "POST",
      "/v2/sources",
      undefined,
      '{"destination":"http://8.8.8.8/","settings":{"Svc-Callback":"http://10.0.0.1/"}}',
    ],
    ["PUT", "/v2/alerts", undefined, '{"url":"http://10.0.0.1/"}'],
  ] as const)("warns: %s %s %j %s", async (...[method, path, headers, body]) => {
    const { ask } = await rules();
    const answer = await ask(method, path, { ...(headers && { headers }), ...(body && { body }) });
    expect([Math.floor(answer.status / 100), warningOf(answer)]).toEqual([2, refused]);
  });

  test.each(["/v2/publish/g", "/v2/enqueue/q/g", "/v2/schedules/g"])(
    "warns of the endpoints of a URL group: %s",
    async (path) => {
      const { ask } = await rules();
      await ask("POST", "/v2/topics/g/endpoints", {
        body: '{"endpoints":[{"url":"http://8.8.8.8/"},{"url":"http://10.0.0.1/"}]}',
      });
      expect(
        warningOf(
          await ask("POST", path, path.includes("schedules") ? { headers: { "Svc-Cron": "* * * * *" } } : {}),
        ),
      ).toBe(refused);
    },
  );

  test("warns on a connection that only publishes", async () => {
    const { api } = await rules();
    await api.listen({ port: 0, host: "127.0.0.1" });
    const { port } = api.server.address() as AddressInfo;
    const publish = (): Promise<Response> =>
      fetch(`http://127.0.0.1:${port}/v2/publish/http://10.0.0.1/`, {
        method: "POST",
        body: "x",
        headers: { authorization: `Bearer ${token}` },
      });
    for (let round = 0; round < 2; round++)
      expect((await publish()).headers.get("waypost-warning")).toBe(refused);
  });
});

test("a batch names at most five hosts, each once, and counts the others", async () => {
  const { ask } = await rules();
  const hosts = ["169.254.1.1", ...Array.from({ length: 8 }, (_none, at) => `10.0.0.${at + 1}`)];
  const items = [...hosts, ...hosts].map((host) => ({ destination: `http://${host}/` }));
  const five = "10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5";
  expect(warningOf(await ask("POST", "/v2/batch", { body: JSON.stringify(items) }))).toBe(
    `destination: ${five} and 3 more are not public and refused: allow with ` +
      `WAYPOST_EGRESS_ALLOW=${five.replaceAll(" ", "")}, ` +
      "destination: 169.254.1.1 is refused, as a link-local or metadata address",
  );
});

test("the warning is one line of ASCII with at most 2,000 characters, for any URL", async () => {
  const everything: FindHostRefusal = (host) => ({ address: host, allow: "127.0.0.1", isResolved: true });
  const { ask } = await createTestServer({ refusedHost: everything });
  const odd = [
    'http://a"b,c;d.localhost/',
    "http://ünï.localhost/",
    `http://${"a.".repeat(100)}localhost/`,
    "http://{x}=`y`.localhost/",
  ];
  const items = [...odd, "http://x%0d%0aset-cookie:a.localhost/", "http://x\r\ny.localhost/"].map(
    (destination) => ({ destination }),
  );
  const warning = String(warningOf(await ask("POST", "/v2/batch", { body: JSON.stringify(items) })));
  expect(warning).toMatch(/^destination: a"b,c;d\.localhost, [\x20-\x7e]+$/);
  expect(warning).not.toContain("cookie");
  expect(warning.length).toBeLessThan(2_000);
});

describe("a token with its own rights", () => {
  const boundTo = async (here: TestServer, destinations: string[]): Promise<string> => {
    const { body } = await here.ask("POST", "/v2/tokens", {
      body: JSON.stringify({ name: "bound", verbs: ["publish"], destinations }),
    });
    return body.token as string;
  };

  test("is warned that an endpoint of a URL group is refused, without its URL", async () => {
    const here = await rules();
    await here.ask("POST", "/v2/topics/g/endpoints", {
      body: '{"endpoints":[{"url":"http://10.0.0.1/secret"},{"url":"http://[::1]/"}]}',
    });
    const answer = await here.ask("POST", "/v2/publish/g", { token: await boundTo(here, ["group:g"]) });
    expect([answer.status, warningOf(answer)]).toEqual([
      200,
      "destination: an endpoint of the URL group g is not public and is refused",
    ]);
  });

  test("is warned of an address that it sent, and not of an address from a name server", async () => {
    const resolved: FindHostRefusal = (host) =>
      host === "app.internal"
        ? { address: "10.0.0.7", allow: "10.0.0.7", isResolved: true }
        : refusedHost(host);
    const here = await createTestServer({ refusedHost: resolved });
    const bound = await boundTo(here, ["http://10.0.0.1/*", "http://app.internal/*"]);
    expect(warningOf(await here.ask("POST", "/v2/publish/http://10.0.0.1/a", { token: bound }))).toBe(
      publicOnly("10.0.0.1"),
    );
    expect(
      warningOf(await here.ask("POST", "/v2/publish/http://app.internal/a", { token: bound })),
    ).toBeUndefined();
  });

  test("is not warned of a destination to which it may not publish", async () => {
    const here = await rules();
    const answer = await here.ask("POST", "/v2/publish/http://10.0.0.1/a", {
      token: await boundTo(here, ["http://8.8.8.8/*"]),
    });
    expect([answer.status, warningOf(answer)]).toEqual([403, undefined]);
  });
});

test("the warnings of a limit and of a destination share the header", async () => {
  const here = await rules();
  await here.store.execute("changeAccount", {
    account: "acc_1",
    change: { limits: { requestsPerDay: 1, requestsPerDayHard: 5 } },
  });
  await here.ask("POST", "/v2/publish/http://8.8.8.8/");
  const warning = warningOf(await here.ask("POST", "/v2/publish/http://10.0.0.1/"));
  expect(warning).toMatch(/^requests: .*, destination: 10\.0\.0\.1 is not public/);
});

describe("the body of the response", () => {
  const refused = publicOnly("10.0.0.1");
  const bodyOf = async (
    here: TestServer,
    path: string,
    more: { headers?: Record<string, string>; body?: string; token?: string } = {},
  ): Promise<unknown> => (await here.ask("POST", path, more)).body;

  test("has the warnings of its message, and no such field without them", async () => {
    const here = await rules();
    const messageId = expect.any(String);
    const url = "http://10.0.0.1/";
    const warnings = [refused];
    expect(await bodyOf(here, `/v2/publish/${url}`)).toEqual({ messageId, url, warnings });
    expect(await bodyOf(here, `/v2/enqueue/q/${url}`)).toEqual({ messageId, url, warnings });
    expect(await bodyOf(here, "/v2/publish/http://8.8.8.8/")).toEqual({ messageId, url: "http://8.8.8.8/" });
    const headers = { "Svc-Callback": url, "Svc-Failure-Callback": "http://169.254.169.254/" };
    expect(await bodyOf(here, "/v2/publish/http://8.8.8.8/", { headers })).toMatchObject({
      warnings: [refused, "destination: 169.254.169.254 is refused, as a link-local or metadata address"],
    });
    const cron = { "Svc-Cron": "* * * * *" };
    expect(await bodyOf(here, `/v2/schedules/${url}`, { headers: cron })).toEqual({
      scheduleId: expect.any(String),
      warnings,
    });
    expect(await bodyOf(here, "/v2/schedules/http://8.8.8.8/", { headers: cron })).toEqual({
      scheduleId: expect.any(String),
    });
  });

  test("has the warnings of what is kept for later, when it is made and when it is changed", async () => {
    const here = await rules();
    const url = "http://10.0.0.1/";
    const open = "http://8.8.8.8/";
    const shown = async (method: "POST" | "PATCH" | "PUT", path: string, fields: object) => {
      const answer = await here.ask(method, path, { body: JSON.stringify(fields) });
      expect(Math.floor(answer.status / 100)).toBe(2);
      const { warnings, sourceId } = answer.body as { warnings?: string[]; sourceId?: string };
      expect(warningOf(answer)).toBe(warnings?.join(", "));
      return { warnings, sourceId };
    };
    const warnings = [refused];
    const none = { warnings: undefined };
    const callback = { "Svc-Callback": url };

    const made = await shown("POST", "/v2/sources", { destination: url });
    expect(made).toMatchObject({ warnings });
    const source = `/v2/sources/${made.sourceId}`;
    expect(await shown("PATCH", source, { paused: true })).toMatchObject(none);
    expect(await shown("PATCH", source, { destination: open })).toMatchObject(none);
    expect(await shown("PATCH", source, { settings: callback })).toMatchObject({ warnings });
    await here.ask("POST", `/v2/schedules/${open}`, {
      headers: { "Svc-Cron": "* * * * *", "Svc-Schedule-Id": "s" },
    });
    expect(await shown("PATCH", "/v2/schedules/s", { destination: url })).toMatchObject({ warnings });
    expect(await shown("PATCH", "/v2/schedules/s", { destination: open })).toMatchObject(none);

    const endpoints = "/v2/topics/g/endpoints";
    expect(await shown("POST", endpoints, { endpoints: [{ url }] })).toMatchObject({ warnings });
    expect(await shown("POST", endpoints, { endpoints: [{ url: open }] })).toMatchObject(none);
    expect(await shown("PATCH", "/v2/topics/g", { headers: callback })).toMatchObject({ warnings });
    expect(await shown("POST", "/v2/sources", { destination: "g" })).toMatchObject({ warnings });
    expect(await shown("PUT", "/v2/alerts", { url })).toMatchObject({ warnings });
  });

  test("of a change to a source has none for a token that may not read", async () => {
    const here = await rules();
    const { body } = await here.ask("POST", "/v2/sources", { body: '{"destination":"http://10.0.0.1/"}' });
    const made = await here.ask("POST", "/v2/tokens", {
      body: JSON.stringify({ name: "blind", verbs: ["manage"], destinations: [] }),
    });
    const answer = await here.ask("PATCH", `/v2/sources/${body.sourceId as string}`, {
      body: '{"settings":{"Svc-Retries":"1"}}',
      token: made.body.token as string,
    });
    expect([answer.status, warningOf(answer)]).toEqual([200, undefined]);
    expect(JSON.stringify(answer.body)).not.toContain("10.0.0.1");
  });

  test("of a list has them at each message", async () => {
    const here = await rules();
    const items = ["http://10.0.0.1/a", "http://8.8.8.8/", "http://10.0.0.2/", "nowhere:"].map(
      (destination) => ({ destination }),
    );
    expect(await bodyOf(here, "/v2/batch", { body: JSON.stringify(items) })).toMatchObject([
      { url: "http://10.0.0.1/a", warnings: [refused] },
      { url: "http://8.8.8.8/" },
      { warnings: [publicOnly("10.0.0.2")] },
      { code: "invalid" },
    ]);
    const [, second] = (await bodyOf(here, "/v2/batch", { body: JSON.stringify(items) })) as object[];
    expect(second).not.toHaveProperty("warnings");
    const runs = JSON.stringify(items.slice(0, 2));
    expect(await bodyOf(here, "/v2/batch/trigger", { body: runs })).toEqual([
      expect.objectContaining({ warnings: [refused] }),
      expect.not.objectContaining({ warnings: expect.anything() }),
    ]);
    expect(await bodyOf(here, "/v2/trigger/http://10.0.0.1/")).toMatchObject({ warnings: [refused] });
  });

  test("of a URL group has them at each endpoint", async () => {
    const here = await rules();
    await here.ask("POST", "/v2/topics/g/endpoints", {
      body: '{"endpoints":[{"url":"http://8.8.8.8/"},{"url":"http://10.0.0.1/"}]}',
    });
    expect(await bodyOf(here, "/v2/publish/g")).toEqual([
      expect.not.objectContaining({ warnings: expect.anything() }),
      expect.objectContaining({ url: "http://10.0.0.1/", warnings: [refused] }),
    ]);
  });
});

describe("the conditions of the account", () => {
  const listOf = async (here: TestServer, by?: string): Promise<unknown> => {
    const { body } = await here.ask("GET", "/v2/overview", by === undefined ? {} : { token: by });
    return body.conditions;
  };

  test("have a refused host once it is named, for an hour, and no other account sees it", async () => {
    const here = await rules();
    await here.ask("POST", "/v2/publish/http://lobe.localhost:3210/x", { headers: { "Svc-Delay": "1d" } });
    const found = {
      kind: "host.refused",
      level: "problem",
      subject: "lobe.localhost:3210",
      text:
        "Nothing is sent to lobe.localhost:3210: its address is not public; " +
        "allow it with WAYPOST_EGRESS_ALLOW=127.0.0.0/8,::1/128",
      since: here.clock.now,
    };
    expect(await listOf(here)).toMatchObject([found]);
    expect(await listOf(here, otherToken)).toEqual([]);
    here.clock.now += 59 * 60_000;
    expect(await listOf(here)).toMatchObject([found]);
    here.clock.now += 2 * 60_000;
    expect(await listOf(here)).toEqual([]);
  });

  test("have the refused host of a source that is called", async () => {
    let isRefused = false;
    const changing: FindHostRefusal = () =>
      isRefused ? { address: "10.0.0.7", allow: "app.internal", isResolved: true } : null;
    const here = await createTestServer({ refusedHost: changing });
    const made = await here.ask("POST", "/v2/sources", { body: '{"destination":"http://app.internal/"}' });
    isRefused = true;
    expect(await listOf(here)).toEqual([]);
    const { pathname } = new URL(made.body.url as string);
    const called = await here.ask("POST", pathname, { body: "{}" });
    expect([called.status, warningOf(called)]).toEqual([200, undefined]);
    expect(await listOf(here)).toMatchObject([{ kind: "host.refused", subject: "app.internal" }]);
  });

  test("lose it when the name has a public address", async () => {
    let isRefused = true;
    const changing: FindHostRefusal = () =>
      isRefused ? { address: "10.0.0.7", allow: "app.internal", isResolved: true } : null;
    const here = await createTestServer({ refusedHost: changing });
    await here.ask("POST", "/v2/publish/http://app.internal/");
    expect(await listOf(here)).toMatchObject([
      {
        subject: "app.internal",
        text:
          "Nothing is sent to app.internal: its address is not public; " +
          "allow it with WAYPOST_EGRESS_ALLOW=app.internal; a loopback address needs its own entry",
      },
    ]);
    isRefused = false;
    expect(await listOf(here)).toEqual([]);
  });
});

test.each([
  [{ allow: null, isResolved: true }, "its address is not public"],
  [{ allow: null, isResolved: false }, "it is a link-local or metadata address"],
  [
    { allow: "lobe", isResolved: true },
    "its address is not public; allow it with WAYPOST_EGRESS_ALLOW=lobe; " +
      "a loopback address needs its own entry",
  ],
])("a refusal with %j is worded without the address", (refused, text) => {
  expect(describeRefusal({ address: "169.254.169.254", ...refused })).toBe(text);
});
