import { useFilters } from "./filters.tsx";
import type { Column, Sorting } from "./table.tsx";

/** Reads an order from the address: the name of a column, after a minus if it is descending. */
const parseOrder = (text: string): NonNullable<Sorting["order"]> =>
  text.startsWith("-") ? { head: text.slice(1), isDescending: true } : { head: text, isDescending: false };

const compare = (one: number | string, other: number | string): number =>
  typeof one === "number" && typeof other === "number"
    ? one - other
    : String(one).localeCompare(String(other), "en", { numeric: true });

/**
 * Sorts the rows of a list by the column that the address names. A press on a head sorts numbers from the
 * largest and names from the first, the second press reverses that, and the third restores the order of
 * the page. Only columns with `sortBy` are sorted: those of lists that are loaded as a whole.
 */
export function useSorting<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
): { rows: readonly Row[]; sorting: Sorting | undefined } {
  const { values, set } = useFilters();
  if (!columns.some(({ sortBy }) => sortBy)) return { rows, sorting: undefined };
  const wanted = values["by"] === undefined ? null : parseOrder(values["by"]);
  const find = (head: string): Column<Row> | undefined =>
    columns.find((one) => one.head === head && one.sortBy !== undefined);
  const value = wanted && find(wanted.head)?.sortBy;
  const order = wanted && value ? wanted : null;
  const factor = order?.isDescending ? -1 : 1;
  const sortBy = (head: string): void => {
    const first = rows[0];
    const isNumber = first !== undefined && typeof find(head)?.sortBy?.(first) === "number";
    const steps = isNumber ? [`-${head}`, head] : [head, `-${head}`];
    set({ by: steps[steps.indexOf(values["by"] ?? "") + 1] });
  };
  return {
    rows: value ? rows.toSorted((one, other) => factor * compare(value(one), value(other))) : rows,
    sorting: { order, sortBy },
  };
}
