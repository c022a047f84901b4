import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { tagline } from "../src/engine/core/values/brand.ts";

// Files and statements that users expect in a repository.

const text = (name: string): string => readFileSync(join(import.meta.dirname, "..", name), "utf8");
const inOneLine = (name: string): string => text(name).replaceAll(/\s+/g, " ");

test("has the files that users expect", () => {
  for (const name of [
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    ".github/pull_request_template.md",
    ".github/ISSUE_TEMPLATE/bug.md",
  ])
    expect(text(name).length, name).toBeGreaterThan(200);
  expect(text("NOTICE")).toContain("The Waypost authors");
});

test("the README and the package name the compatible API, and deny any affiliation", () => {
  for (const name of ["README.md", "package.json"]) {
    expect(inOneLine(name), name).toMatch(/[Ss]elf-hosted/);
    expect(inOneLine(name), name).toContain("compatible with the HTTP API of QStash and Upstash Workflow");
    expect(inOneLine(name), name).toMatch(
      /[Nn]ot affiliated with or endorsed by (their vendor, )?Upstash, Inc\./,
    );
  }
  const { author, keywords } = JSON.parse(text("package.json")) as { author: string; keywords: string[] };
  expect(author).toBe("The Waypost authors");
  expect(keywords).toEqual(
    expect.arrayContaining([
      "message-queue",
      "job-queue",
      "webhooks",
      "workflow",
      "cron",
      "qstash",
      "self-hosted",
    ]),
  );
});

test("the README, the packages and the help have the same line about the product", () => {
  for (const name of ["README.md", "docs/package.md", "package.json"])
    expect(inOneLine(name).toLowerCase(), name).toContain(tagline.toLowerCase());
});

test("no key of package.json is repeated", () => {
  // The keys of a file that npm formatted: a key has the indentation of its object, which ends with a brace.
  const repeated: string[] = [];
  const open: Set<string>[] = [];
  for (const line of text("package.json").split("\n")) {
    const key = /^\s*("[^"]+"):/.exec(line)?.[1];
    if (key !== undefined && open.at(-1)?.has(key)) repeated.push(key);
    if (key !== undefined) open.at(-1)?.add(key);
    if (/[{[]$/.test(line)) open.push(new Set());
    if (/^\s*[}\]]/.test(line)) open.pop();
  }
  expect(repeated, "JSON.parse and npm silently use the last of two values.").toEqual([]);
});

test("unknown addresses are reserved placeholders", () => {
  for (const name of [
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    ".github/ISSUE_TEMPLATE/config.yml",
    "package.json",
  ]) {
    const hosts = [...text(name).matchAll(/(?:@|https?:\/\/)([a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,})/g)].map(
      ([, host]) => host,
    );
    expect(new Set(hosts), name).toEqual(new Set(["placeholder.invalid"]));
  }
});
