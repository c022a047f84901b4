import { expect, test } from "vitest";
import { diffTexts } from "../../console/src/parts/diff.ts";

/** Returns a diff with a mark before each line. */
const show = (before: string, after: string): string[] =>
  diffTexts(before, after).map(({ kind, text }) => `${{ same: " ", removed: "-", added: "+" }[kind]}${text}`);

test("only the lines that differ are marked", () => {
  expect(show("a\nb\nc", "a\nx\nc\nd")).toEqual([" a", "-b", "+x", " c", "+d"]);
  expect(show("", "a")).toEqual(["-", "+a"]);
  expect(show("same", "same")).toEqual([" same"]);
});

test("JSON is compared by its fields, and its numbers stay as they are", () => {
  expect(show('{"id":9007199254740993,"a":1}', '{"id":9007199254740993,"a":2}')).toEqual([
    " {",
    '   "id": 9007199254740993,',
    '-  "a": 1',
    '+  "a": 2',
    " }",
  ]);
});

test("a string of many lines is replaced as a whole", () => {
  const many = Array.from({ length: 401 }, (_, at) => `line ${at}`).join("\n");
  expect(diffTexts(many, many).every(({ kind }) => kind !== "same")).toBe(true);
});
