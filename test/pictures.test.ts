import { globSync, readFileSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { expect, test } from "vitest";

// The pictures of the documentation have one style, can be read in the column of the site, and are on a page.

const home = join(import.meta.dirname, "..");
const read = (file: string): string => readFileSync(join(home, file), "utf8");
const drawings = globSync("docs/pictures/*.svg", { cwd: home });

/** The width of the column of text on the site, in pixels. */
const columnWidth = 688;

test.each(drawings)("%s has a title, and fits the column of the site", (file) => {
  const svg = read(file);
  expect(svg).toMatch(/<title>[A-Z].+<\/title>/);
  const width = Number(/<svg [^>]*\bwidth="(\d+)"/.exec(svg)?.[1]);
  expect(svg).toContain(`viewBox="0 0 ${width} `);
  expect(width).toBeLessThanOrEqual(columnWidth);
  for (const [, size] of svg.matchAll(/font-size="([\d.]+)"/g))
    expect(Number(size)).toBeGreaterThanOrEqual(11);
});

test("all drawings have the same colors in the dark theme", () => {
  const styles = drawings.map((file) => /<style>.*<\/style>/s.exec(read(file))?.[0]);
  expect(new Set(styles).size).toBe(1);
  expect(styles[0]).toContain("prefers-color-scheme: dark");
});

test.each(globSync("docs/pictures/*.png", { cwd: home }))("%s has at most 150 kB", (file) => {
  expect(statSync(join(home, file)).size).toBeLessThanOrEqual(150_000);
});

test("every picture is on a page", () => {
  const pages = globSync(["README.md", "docs/**/*.md"], { cwd: home }).map(read).join("\n");
  const unused = globSync("docs/pictures/*", { cwd: home }).filter(
    (file) => !pages.includes(`pictures/${basename(file)})`),
  );
  expect(unused).toEqual([]);
});
