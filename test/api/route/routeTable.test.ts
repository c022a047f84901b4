import { fc } from "../../seeds.ts";
import type { HTTPMethods } from "fastify";
import { expect, test } from "vitest";
import { listMethods } from "../../../src/api/route/route.ts";
import { routeTable } from "../../../src/api/route/routeTable.ts";
import type { Found } from "../../../src/api/route/routeTable.ts";
import { routes } from "../../../src/operations/routes.ts";
import { createTestServer } from "../testServer.ts";

const table = routeTable(routes);
const find = (method: string, target: string): Found | null => table.find({ method, target, rawHeaders: [] });

test("every route is found at its path with its parameters", () => {
  for (const route of routes) {
    const names = [...route.path.matchAll(/\{(\w+)\}/g)].flatMap(([, name]) =>
      name === undefined || name === "destination" ? [] : [name],
    );
    const target = route.path
      .replace("{destination}", "https://e.example/x?y=%")
      .replaceAll(/\{(\w+)\}/g, "Id_$1");
    const params = Object.fromEntries(names.map((name) => [name, `Id_${name}`]));
    for (const method of listMethods(route))
      expect(find(method, target), `${method} ${target}`).toEqual({ route, params });
  }
});

test("a publish with a cron expression creates a schedule", () => {
  const publish = { method: "POST", target: "/v2/publish/https://e.example" };
  const found = [
    table.find({ ...publish, rawHeaders: ["Upstash-Cron", "* * * * *"] }),
    table.find({ ...publish, target: `${publish.target}?svc-cr%6Fn=x`, rawHeaders: [] }),
  ];
  expect(found.map((one) => one?.route.path)).toEqual(Array(2).fill("/v2/schedules/{destination}"));
});

const paths = routes.map(({ path }) =>
  path
    .replace(/\{(\w+)\}/g, "{}")
    .split("/")
    .slice(1),
);
const piece = fc.constantFrom("id", "Id.1-x", "", "%41", "a#b", "a;b", "ü", "retry", "pause", "https:");
/** Targets near those of routes: parameters are filled in, and one segment may be replaced. */
const target = fc
  .tuple(
    fc.constantFrom(...paths),
    piece,
    piece,
    fc.nat(8),
    fc.constantFrom("", "/", "?cancel=false", "/?x"),
    fc.boolean(),
  )
  .map(([path, param, other, at, end, isUpper]) => {
    const filled = path.map((one, index) =>
      one === "{}" ? param : index === at && isUpper ? one.toUpperCase() : one,
    );
    if (at > 4) filled[at - 4] = other;
    return `/${filled.join("/")}${end}`;
  });

test("the route table finds the route that the framework's router chooses", async () => {
  const { api } = await createTestServer();
  const chosen: unknown[] = [];
  api.addHook(
    "onResponse",
    async ({ routeOptions, params }) => void chosen.push({ route: routeOptions.config.route, params }),
  );
  let compared = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom("GET", "POST", "PUT", "PATCH", "DELETE"),
      target,
      async (method, url) => {
        const found = find(method, url);
        if (found === null) return;
        await api.inject({ method: method as HTTPMethods & "GET", url });
        expect(chosen.pop(), `${method} ${url}`).toEqual({ route: found.route, params: found.params });
        compared++;
      },
    ),
    { numRuns: 500 },
  );
  expect(compared).toBeGreaterThan(50);
});
