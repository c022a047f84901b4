import { existsSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { groups } from "../../site/navigation.ts";
import { documentationPages } from "../../src/client/documentation.ts";
import { runWaypost } from "../server/waypost.ts";

const files = groups.flatMap(({ pages }) => Object.values(pages));

test.each(Object.entries(documentationPages))("the documentation of %s is the page %s", (_, page) => {
  expect(files).toContain(`docs/${page}.md`);
  expect(existsSync(new URL(`../../docs/${page}.md`, import.meta.url))).toBe(true);
});

describe("the help", () => {
  test("names a page for every command, and the first page", async () => {
    const { out } = await runWaypost(["--help"]).ended;
    const names = [...out.matchAll(/^ {2}([a-z][\w-]*)(?= )/gm)].map(([, name = ""]) => name);
    expect(names.length).toBeGreaterThan(25);
    expect(names.filter((name) => name !== "help").toSorted()).toEqual(Object.keys(documentationPages));
    expect(out).toMatch(/\nDocumentation: <url of the server>\/docs\/\n$/);
  });

  test.each([
    [["account", "--help"], "guides/accounts"],
    [["dlq", "retry", "--help"], "guides/dead-letters"],
    [["start", "--help"], "guides/installing"],
  ])("of %j ends with its page", async (args, page) => {
    const { out } = await runWaypost(args).ended;
    expect(out).toMatch(new RegExp(`\\nDocumentation: <url of the server>/docs/${page}\n$`));
    expect(out.match(/Documentation:/g)).toHaveLength(1);
  });
});
