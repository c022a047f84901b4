import { expect, onTestFinished, test } from "vitest";
import { routes } from "../../../src/operations/routes.ts";
import { openApi } from "../../../src/api/server/openapi.ts";
import { createTestServer } from "../testServer.ts";

const halfYear = 182 * 24 * 3_600_000;

test("a deprecated route has dates, half a year apart, and is not on the fast path", () => {
  for (const { path, deprecated, onFastPath } of routes) {
    if (!deprecated) continue;
    const [since, sunset] = [deprecated.since, deprecated.sunset].map((date) => Date.parse(date));
    expect((sunset ?? 0) - (since ?? 0), path).toBeGreaterThanOrEqual(halfYear);
    expect(onFastPath, path).toBeUndefined();
  }
});

const headersOf = ({ headers }: { headers: Record<string, unknown> }) => [
  headers["deprecation"],
  headers["sunset"],
  headers["link"],
];

test("responses of a deprecated route have the headers, and the document marks it", async () => {
  const row = routes.find(({ method, path }) => method === "GET" && path === "/v2/queues/{name}");
  if (!row) return expect.unreachable("the route does not exist");
  const link = "https://docs.example/queues";
  row.deprecated = { since: "2027-01-01", sunset: "2027-07-15", link };
  onTestFinished(() => void Reflect.deleteProperty(row, "deprecated"));
  const server = await createTestServer();
  const expected = [
    "@1798761600",
    "Thu, 15 Jul 2027 00:00:00 GMT",
    `<${link}>; rel="deprecation"; type="text/html"`,
  ];
  await server.ask("POST", "/v2/queues", { body: JSON.stringify({ queueName: "orders", parallelism: 1 }) });
  const replies = [
    await server.ask("GET", "/v2/queues/orders"),
    await server.ask("HEAD", "/v2/queues/orders"),
    await server.ask("GET", "/v2/queues/none"),
    await server.ask("GET", "/v2/queues/orders", { token: "wrong" }),
    await server.ask("GET", "/v2/queues/orders?unknown=%zz"),
  ];
  expect(replies.map(({ status }) => status)).toEqual([200, 200, 404, 401, 400]);
  for (const reply of replies) expect(headersOf(reply)).toEqual(expected);
  for (const reply of [
    await server.ask("GET", "/v2/queues"),
    await server.ask("DELETE", "/v2/queues/orders"),
  ])
    expect(headersOf(reply)).toEqual([undefined, undefined, undefined]);
  const { paths } = openApi(routes) as { paths: Record<string, Record<string, object>> };
  expect(paths["/v2/queues/{name}"]).toMatchObject({
    get: {
      deprecated: true,
      description: expect.stringContaining(
        `Deprecated since 2027-01-01, and removed on 2027-07-15 or later: ${link}`,
      ),
    },
  });
  expect(paths["/v2/queues/{name}"]?.["delete"]).not.toHaveProperty("deprecated");
});
