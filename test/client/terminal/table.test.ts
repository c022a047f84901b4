import { fc } from "../../seeds.ts";
import { expect, test } from "vitest";
import { widthOf } from "../../../src/client/terminal/safeText.ts";
import type { Column } from "../../../src/client/terminal/table.ts";
import { formatPairs, formatTable } from "../../../src/client/terminal/table.ts";

type Row = { id: string; url: string; count: number };

const columns: readonly Column<Row>[] = [
  { title: "ID", show: ({ id }) => id },
  { title: "URL", show: ({ url }) => url, shrinks: true },
  { title: "COUNT", show: ({ count }) => String(count), isNumber: true },
  { title: "EMPTY", show: () => "" },
];
const rows: readonly Row[] = [
  { id: "a", url: "https://example.com/a/very/long/path", count: 7 },
  { id: "bb", url: "https://example.com", count: 1234 },
];

test("without a terminal, nothing is cut and columns without content are left out", () =>
  expect(formatTable(columns, rows, null)).toEqual([
    "ID  URL                                   COUNT",
    "a   https://example.com/a/very/long/path      7",
    "bb  https://example.com                    1234",
  ]));

test("on a narrow terminal, long columns are cut", () =>
  expect(formatTable(columns, rows, 30)).toEqual([
    "ID  URL                  COUNT",
    "a   https://example.co…      7",
    "bb  https://example.com   1234",
  ]));

test("on a very narrow terminal, the last columns are left out", () =>
  expect(formatTable(columns, rows, 12)).toEqual(["ID  URL", "a   https:/…", "bb  https:/…"]));

test("no line is wider than the terminal", () => {
  const text = fc.string({ unit: "grapheme", maxLength: 40 });
  const row = fc.record({ id: text, url: text, count: fc.nat() });
  fc.assert(
    fc.property(fc.array(row, { maxLength: 5 }), fc.integer({ min: 1, max: 80 }), (given, width) => {
      for (const line of formatTable(columns, given, width)) expect(widthOf(line)).toBeLessThanOrEqual(width);
    }),
  );
});

test("pairs without a value are left out", () =>
  expect(
    formatPairs([
      ["id", "a"],
      ["queue", ""],
      ["url", "b"],
    ]),
  ).toEqual(["id   a", "url  b"]));
