import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { errorHelp } from "../../../src/api/http/errorHelp.ts";
import { errorCodes } from "../../../src/engine/core/values/errors.ts";

const page = readFileSync(join(import.meta.dirname, "../../../docs/errors.md"), "utf8");

test("the page of errors has an entry for every code, under its name", () => {
  const entries = [...page.matchAll(/^### (.*)$/gm)].map(([, title]) => title);
  expect(entries).toHaveLength(Object.keys(errorCodes).length);
  expect(new Set(entries)).toEqual(new Set(Object.keys(errorCodes)));
});

test("the help for every code is whole sentences", () => {
  for (const [code, { causes, remedy }] of Object.entries(errorHelp)) {
    expect(causes.length, code).toBeGreaterThan(0);
    for (const text of [...causes, remedy]) expect(text, code).toMatch(/^[A-Z`].*\.$/);
  }
});

test("a refusal of a busy or stopped server, and of a rate or quota, says that a retry may help", () => {
  const final = Object.entries(errorCodes)
    .filter(([, { status }]) => status === 429 || status === 503)
    .filter(([code]) => errorHelp[code as keyof typeof errorHelp].retry === "no");
  expect(final).toEqual([]);
});
