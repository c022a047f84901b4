import { expect, test } from "vitest";
import { findDifference, titleOf } from "../../console/src/parts/groupTitles.ts";
import { compareCounts } from "../../console/src/parts/words.ts";

const makeGroup = (url: string, error = "out of order") => ({ error, responseStatus: 500, url });

test("the title of a group is its error with its status", () => {
  expect(titleOf({ error: "the endpoint answered with status …", responseStatus: 503, url: "" })).toBe(
    "the endpoint answered with status 503",
  );
  expect(titleOf({ error: "", url: "" })).toBe("no response");
});

test("groups with the same title show the part of the URL by which they differ", () => {
  const show = (...urls: string[]): string[] => {
    const all = urls.map((url) => makeGroup(url));
    return all.map((group) => findDifference(group, all));
  };
  expect(show("https://a.example/x", "https://a.example/y")).toEqual(["/x", "/y"]);
  expect(show("https://a.example/x", "https://b.example/x")).toEqual(["a.example", "b.example"]);
  expect(show("https://a.example/x", "https://b.example/y")).toEqual(["a.example/x", "b.example/y"]);
  expect(show("https://a.example/", "https://a.example/x")).toEqual(["/", "/x"]);
  expect(show("http://a.example/x", "https://a.example/x")).toEqual(["/x", "/x"]);
  const other = makeGroup("https://a.example/y", "unknown");
  expect(findDifference(other, [makeGroup("https://a.example/x"), other])).toBe("");
});

test("a count is compared with an earlier one", () => {
  expect(compareCounts(12, 10)).toBe("+20 %");
  expect(compareCounts(6, 10)).toBe("−40 %");
  expect(compareCounts(35, 10)).toBe("×3.5");
  expect(compareCounts(10, 10)).toBe("as many");
  expect(compareCounts(3, 0)).toBe("new");
  expect(compareCounts(0, 0)).toBe("as many");
});
