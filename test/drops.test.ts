import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { listFiles, listImported, withoutOperation } from "../scripts/dropOperation.ts";

const read = (file: string): string => readFileSync(new URL(`../${file}`, import.meta.url), "utf8");

const operations = readdirSync(new URL("../src/operations", import.meta.url), { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => name);

// The doctor is the only one that the program names. "npm run drops" lists the files to edit.
test.each(operations.filter((name) => name !== "doctor"))("without %s, no list names it", (operation) => {
  const left = listFiles.flatMap((file) => {
    const names = listImported(read(file), operation);
    const rest = withoutOperation(read(file), operation);
    return names.filter((name) => new RegExp(String.raw`\b${name}\b`).test(rest.replace(/"[^"]*"/g, "")));
  });
  expect(
    left,
    '"npm run drops" removes calls and rows of lists. A list takes all else from the operation.',
  ).toEqual([]);
});

test("a name that is used otherwise remains, so the check above sees it", () => {
  const list = 'import { one } from "../operations/first/verbs.ts";\nif (name === "first") one(group);\n';
  expect(withoutOperation(list, "first")).toBe('if (name === "first") one(group);\n');
});
