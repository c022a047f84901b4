import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { openApi } from "../../../src/api/server/openapi.ts";
import { routes } from "../../../src/operations/routes.ts";
import { settingRows } from "../../../src/api/settings/table.ts";

const document = openApi(routes);
const text = JSON.stringify(document);

test("docs/openapi.json matches the routes", () => {
  const committed: unknown = JSON.parse(
    readFileSync(join(import.meta.dirname, "../../../docs/openapi.json"), "utf8"),
  );
  expect(document, "Run npm run openapi, review the difference and commit it.").toEqual(committed);
});

describe("the document", () => {
  test("the document has every route, each with its own operationId", () => {
    const operations = Object.entries(
      document["paths"] as Record<string, Record<string, { operationId: string }>>,
    ).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { operationId }]) => ({
        route: `${method.toUpperCase()} ${path}`,
        operationId,
      })),
    );
    expect(operations.map(({ route }) => route).toSorted()).toEqual(
      routes.map(({ method, path }) => `${method} ${path}`).toSorted(),
    );
    expect(new Set(operations.map(({ operationId }) => operationId)).size).toBe(routes.length);
  });

  test("the document has every setting under both brands", () => {
    for (const name of Object.keys(settingRows)) {
      expect(text).toContain(`\`svc-${name}\``);
      expect(text).toContain(`\`upstash-${name}\``);
    }
  });

  test("errors of the account endpoints have the form of these endpoints", () => {
    const paths = Object.entries(document["paths"] as Record<string, object>);
    const isOfAccounts = ([path]: [path: string, methods: object]): boolean =>
      /^\/v2\/(svc|qstash|admin)\//.test(path);
    const account = JSON.stringify(paths.filter(isOfAccounts));
    const others = JSON.stringify(paths.filter((entry) => !isOfAccounts(entry)));
    expect(account).toContain("#/components/responses/account-unauthorized");
    expect(account).not.toMatch(/#\/components\/responses\/(?!account-)/);
    expect(others).toContain("#/components/responses/unauthorized");
    expect(others).not.toContain("#/components/responses/account-");
  });

  test("the document has no dangling reference", () => {
    const references = [...text.matchAll(/"#\/([^"]+)"/g)].map(([, path]) => path ?? "");
    expect(references.length).toBeGreaterThan(50);
    for (const path of references) {
      const found = path
        .split("/")
        .reduce<unknown>(
          (at, key) => (typeof at === "object" && at !== null ? Reflect.get(at, key) : undefined),
          document,
        );
      expect(found, path).toBeDefined();
    }
  });
});
