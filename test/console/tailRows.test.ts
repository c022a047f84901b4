import { expect, test } from "vitest";
import type { TailLine, TailRow } from "../../console/src/pages/tools/tailRows.ts";
import { TailRows, maxRows } from "../../console/src/pages/tools/tailRows.ts";

const entry = (time: number, more = {}): TailLine =>
  ({
    messageId: `msg_${time}`,
    state: "CREATED",
    method: "POST",
    url: "https://a.example/",
    time,
    ...more,
  }) as never;

/** Returns the shown rows as words. */
const show = ({ view }: TailRows): string[] => view.shown.map(describeRow);

const describeRow = (row: TailRow): string =>
  row.kind === "entry" ? row.messageId : `${row.count ?? "some"} missing from ${row.from} to ${row.to}`;

/** Takes entries with these times. */
function takeMany(rows: TailRows, from: number, count: number): void {
  for (let at = 0; at < count; at++) rows.take(entry(from + at));
}

test("a new connection adds a gap only if the log has newer entries than the last line", () => {
  const rows = new TailRows();
  rows.begin();
  rows.take({ heartbeat: 100 });
  rows.take(entry(120));
  rows.begin();
  rows.take({ heartbeat: 120 });
  rows.take(entry(130));
  rows.begin();
  rows.take({ heartbeat: 150 });
  rows.take({ heartbeat: 160 });
  rows.flush();
  expect(show(rows)).toEqual(["msg_120", "msg_130", "some missing from 131 to 150"]);
});

test("entries that the server left out are counted, and shown where they are missing", () => {
  const rows = new TailRows();
  rows.take(entry(1));
  rows.take({ dropped: 7, fromDate: 2, toDate: 9 });
  rows.take({ dropped: null, fromDate: 10, toDate: 40 });
  rows.take(entry(50));
  rows.flush();
  expect(show(rows)).toEqual(["msg_1", "7 missing from 2 to 9", "some missing from 10 to 40", "msg_50"]);
  expect(rows.view).toMatchObject({ came: 2, leftOut: 7 });
});

test("the oldest rows are removed, in a step that adds none", () => {
  const rows = new TailRows();
  for (let round = 0; round < 50; round++) {
    takeMany(rows, round * 90, 90);
    while (rows.isBehind) {
      const before = rows.view.shown;
      rows.flush();
      const isCut = rows.view.shown.length < before.length;
      expect(rows.view.shown.at(-1) === before.at(-1)).toBe(isCut);
    }
    expect(rows.view.shown.length).toBeLessThanOrEqual(maxRows + 100);
  }
  expect(show(rows).at(-1)).toBe(`msg_${50 * 90 - 1}`);
  expect(rows.view.came).toBe(50 * 90);
});

test("what comes while the page is paused is bounded, and a row counts what is left out", () => {
  const rows = new TailRows();
  takeMany(rows, 0, 5_000);
  rows.count();
  expect(rows.view.shown).toEqual([]);
  expect(rows.view.waiting).toBeLessThanOrEqual(maxRows + 101);
  rows.flush();
  const shown = rows.view.shown;
  const missing = shown.reduce((sum, row) => sum + (row.kind === "gap" ? (row.count ?? 0) : 0), 0);
  const entries = shown.filter(({ kind }) => kind === "entry").length;
  expect(missing + entries).toBe(5_000);
  expect(show(rows)[0]).toBe(`${missing} missing from 0 to ${missing - 1}`);
});

test("an entry keeps neither bodies nor headers, and long texts are cut", () => {
  const rows = new TailRows();
  rows.take(entry(1, { body: "x", header: { a: ["b"] }, url: `https://a.example/${"x".repeat(9_000)}` }));
  rows.flush();
  expect(JSON.stringify(rows.view.shown).length).toBeLessThan(1_000);
  expect(JSON.stringify(rows.view.shown)).not.toContain("header");
});
