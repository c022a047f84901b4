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
