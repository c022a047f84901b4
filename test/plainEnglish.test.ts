import { expect, test } from "vitest";
import { findHits } from "../scripts/plainEnglish.ts";

/** Returns the lines and the patterns of the hits in a file. */
const hitsIn = (file: string, text: string): string[] =>
  findHits(file, text).map(({ line, pattern }) => `${line} ${pattern}`);

test("comments, strings and the texts of pages are checked, and code is not", () => {
  const page = [
    "/** Shows which step is under way. */",
    "export const Page = () => (",
    '  <p title="this step is under way now">',
    "    This step is under way now.",
    "    <b>{underWay(step)}</b>",
    "  </p>",
    ");",
  ].join("\n");
  expect(hitsIn("page.tsx", page)).toEqual(["1 under-way", "3 under-way", "4 under-way"]);
});

test("documents are checked, except for their code", () => {
  const text = "The step is under way.\n\n```sh\necho the step is under way\n```\n\nUse `under way` here.\n";
  expect(hitsIn("guide.md", text)).toEqual(["1 under-way"]);
});

test.each([
  ["holds-for", "The limit holds for all messages.", "The limit applies to all messages."],
  ["most-noun", "The most entries of a page.", "The maximum number of entries of a page."],
  ["inverted", "Always shown are the newest entries.", "The newest entries are always shown."],
  ["a-text", "Returns a text in upper case.", "Returns a string in upper case."],
  [
    "late-clause",
    "How long a message has been due that no node sends.",
    "How long a message that no node sends has been due.",
  ],
  ["seal", "It seals the secrets.", "It encrypts the secrets."],
  ["code-word", "The refusal names the brand.", "The error names the prefix."],
  [
    "long",
    `${"The server sends the messages of a queue in order, ".repeat(3)}and it then waits for one more.`,
    `${"The server sends the messages of a queue in order, ".repeat(2)}and it then waits.`,
  ],
])("%s: '%s' is found, and its correction is not", (pattern, wrong, right) => {
  expect(hitsIn("docs/guide.md", wrong)).toContain(`1 ${pattern}`);
  expect(hitsIn("docs/guide.md", right)).toEqual([]);
});

test("documents for contributors may use the words of the code", () => {
  expect(hitsIn("docs/decisions/0001-refuse.md", "The refusal names the brand.")).toEqual([]);
});

test("a list in a template is not one long sentence", () => {
  const list = "* one thing of many words in a list;\n".repeat(8);
  expect(hitsIn("page.ts", `const page = \`These are not included:\n\n${list}\`;`)).toEqual([]);
});
