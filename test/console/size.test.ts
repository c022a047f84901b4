import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { buildConsole } from "../../scripts/buildConsole.js";

const dist = join(import.meta.dirname, "../../console/dist");
beforeAll(() => buildConsole());

const sizeOf = (path: string): number => readFileSync(join(dist, path)).length;
const inKiB = (bytes: number): number => Math.round(bytes / 102.4) / 10;

test("the first load is at most 160 KiB compressed, and everything at most 220", () => {
  const page = readFileSync(join(dist, "index.html"), "utf8");
  const first = [...page.matchAll(/(?:src|href)="\.\/([^"]+)"/g)].map(([, path = ""]) => path);
  const all = readdirSync(dist, { recursive: true })
    .map(String)
    .filter((path) => path.endsWith(".br"));
  expect(first.length).toBeGreaterThan(2);
  expect(inKiB(page.length + first.reduce((sum, path) => sum + sizeOf(`${path}.br`), 0))).toBeLessThanOrEqual(
    160,
  );
  expect(inKiB(all.reduce((sum, path) => sum + sizeOf(path), 0))).toBeLessThanOrEqual(220);
});

test("the page names its files relative to itself, and contains no script or style", () => {
  const page = readFileSync(join(dist, "index.html"), "utf8");
  expect(page).not.toMatch(/(?:src|href)="\/|<script>|<style|style="|\son\w+="/);
});
