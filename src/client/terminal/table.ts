import { fitLine, widthOf } from "./safeText.ts";
import { styled } from "./terminal.ts";

/**
 * A column of a table. `show` returns a line that is safe to print. A column that `shrinks` is cut first if
 * the terminal is narrow. `style` colours a cell.
 */
export type Column<Row> = {
  title: string;
  show(row: Row): string;
  shrinks?: true;
  isNumber?: true;
  style?(row: Row): Parameters<typeof styled>[0] | null;
};

/** The fewest columns of the terminal to which a column shrinks. */
const narrowest = 8;
const gap = "  ";

/**
 * Returns the lines of a table. With `width`, each line takes at most that many columns of the terminal:
 * columns that may shrink are cut, and then the last ones are left out. A column without content is not
 * shown.
 */
export function formatTable<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  width: number | null,
): string[] {
  const filled = columns
    .map((column) => ({ column, cells: rows.map((row) => column.show(row)) }))
    .filter(({ cells }) => cells.some((cell) => cell !== ""))
    .map(({ column, cells }) => ({
      column,
      cells,
      width: cells.reduce((most, cell) => Math.max(most, widthOf(cell)), widthOf(column.title)),
    }));
  const shown = width === null ? filled : fitColumns(filled, width);
  const formatLine = (cellOf: (at: number) => string, style: (at: number, text: string) => string): string =>
    shown
      .map(({ column, width }, at) => {
        const cell = fitLine(cellOf(at), width);
        const blanks = " ".repeat(Math.max(0, width - widthOf(cell)));
        const isLast = at === shown.length - 1;
        return column.isNumber ? blanks + style(at, cell) : style(at, cell) + (isLast ? "" : blanks);
      })
      .join(gap)
      .trimEnd();
  const heading = formatLine(
    (at) => shown[at]?.column.title ?? "",
    (_, text) => styled("dim", text),
  );
  const lines = rows.map((row, index) =>
    formatLine(
      (at) => shown[at]?.cells[index] ?? "",
      (at, text) => {
        const style = shown[at]?.column.style?.(row) ?? null;
        return style === null ? text : styled(style, text);
      },
    ),
  );
  return [heading, ...lines];
}

type Sized<Row> = { column: Column<Row>; cells: string[]; width: number };

function fitColumns<Row>(columns: readonly Sized<Row>[], width: number): Sized<Row>[] {
  const sized = columns.map((column) => ({ ...column }));
  const used = (): number =>
    sized.reduce((total, { width }) => total + width, 0) + gap.length * (sized.length - 1);
  while (used() > width) {
    const widest = sized
      .filter(({ column, width }) => column.shrinks && width > narrowest)
      .toSorted((a, b) => b.width - a.width)[0];
    if (widest) {
      // Down to the next widest column, so that the widest ones share what is missing.
      const next = sized
        .filter((one) => one !== widest && one.column.shrinks && one.width < widest.width)
        .reduce((most, { width }) => Math.max(most, width), narrowest);
      widest.width = Math.max(
        widest.width - Math.max(1, Math.min(used() - width, widest.width - next)),
        narrowest,
      );
    } else if (sized.length > 1) sized.pop();
    else return sized.map((one) => ({ ...one, width: Math.min(one.width, width) }));
  }
  return sized;
}

/** Returns a line for each name with a value, such as the fields of a message. Empty values are omitted. */
export function formatPairs(pairs: readonly (readonly [name: string, value: string])[]): string[] {
  const shown = pairs.filter(([, value]) => value !== "");
  const width = Math.max(0, ...shown.map(([name]) => name.length));
  return shown.map(([name, value]) => `${styled("dim", name.padEnd(width))}${gap}${value}`);
}
