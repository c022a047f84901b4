import { ArrowDown, ArrowUp } from "lucide-react";
import type { ReactNode, RefObject } from "react";
import { memo, useCallback, useEffect, useRef, useState } from "react";
import { isTyping } from "../shell/shortcuts.tsx";
import { Icon } from "./basics.tsx";
import { showHidden } from "./hidden.ts";

/**
 * One column. `className` sets its width, its side, and when it disappears as the table gets narrow. `sortBy`
 * is that by which a press on the head sorts the rows of a list that is loaded as a whole.
 */
export type Column<Row> = {
  head: ReactNode;
  className?: string;
  sortBy?(row: Row): number | string;
  cell(row: Row): ReactNode;
};

/** The order of a table: the head of the column, and how to change it. Null: the order of the page. */
export type Sorting = {
  order: { head: string; isDescending: boolean } | null;
  sortBy(head: string): void;
};

/** The rows that the person has chosen, by their keys. */
export type Choice = { keys: ReadonlySet<string>; toggle(key: string): void };

type TableProps<Row> = {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf(row: Row): string;
  /** The name of a row for a screen reader. Without it: its key. */
  nameOf?: ((row: Row) => string) | undefined;
  /** Opens a row: by Enter, or by a press on the row outside its buttons and links. */
  open?: (row: Row) => void;
  /** The key of the row that is open. */
  openKey?: string | undefined;
  className?: string;
  sorting?: Sorting | undefined;
  /** With it, rows can be chosen: by `x`, or by the box at the beginning of a row. */
  choice?: Choice | undefined;
};

/**
 * A table. `j` and `k` move between its rows, and Enter opens one. A row that opens has its own button,
 * which only the keyboard and a screen reader find.
 */
export function Table<Row>(props: TableProps<Row>) {
  const {
    label,
    columns,
    rows,
    keyOf,
    nameOf = keyOf,
    open,
    openKey,
    className = "",
    sorting,
    choice,
  } = props;
  const body = useRef<HTMLTableSectionElement>(null);
  const cursor = useCursor(props, body);
  const latest = useRef(props);
  latest.current = props;
  const openAt = useCallback((at: number): void => {
    const row = latest.current.rows[at];
    if (row !== undefined) latest.current.open?.(row);
  }, []);
  const toggle = useCallback((key: string): void => latest.current.choice?.toggle(key), []);
  return (
    <div className="wrap">
      <table className={`table ${className}`} aria-label={label}>
        <thead>
          <tr>
            {choice && (
              <th className="pick" scope="col">
                <span className="vh">Chosen</span>
              </th>
            )}
            {columns.map(({ head, className: name, sortBy }, at) =>
              sortBy && sorting && typeof head === "string" ? (
                <SortedHead key={at} head={head} className={name} sorting={sorting} />
              ) : (
                <th key={at} className={name} scope="col">
                  {head}
                </th>
              ),
            )}
          </tr>
        </thead>
        <tbody ref={body}>
          {rows.map((row, at) => {
            const key = keyOf(row);
            return (
              <TableRow
                key={key}
                row={row}
                at={at}
                name={showHidden(nameOf(row))}
                columns={columns}
                isCursor={at === cursor}
                isOpen={key === openKey}
                open={open ? openAt : undefined}
                choiceKey={choice && key}
                isChosen={choice?.keys.has(key) ?? false}
                toggle={toggle}
              />
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

type SortedHeadProps = { head: string; className: string | undefined; sorting: Sorting };

/** The head of a column that sorts the table. */
function SortedHead({ head, className, sorting: { order, sortBy } }: SortedHeadProps) {
  const isDescending = order?.head === head ? order.isDescending : null;
  const sorted = isDescending === null ? undefined : isDescending ? "descending" : "ascending";
  return (
    <th className={className} scope="col" aria-sort={sorted}>
      <button type="button" className="sort" title={`Sort by ${head}`} onClick={() => sortBy(head)}>
        {head}
        {isDescending !== null && <Icon of={isDescending ? ArrowDown : ArrowUp} size="s" />}
      </button>
    </th>
  );
}

type TableRowProps = {
  row: unknown;
  at: number;
  /** The name of the row for a screen reader. */
  name: string;
  columns: readonly Column<unknown>[];
  isCursor: boolean;
  isOpen: boolean;
  open: ((at: number) => void) | undefined;
  /** The key of a row that can be chosen. */
  choiceKey: string | undefined;
  isChosen: boolean;
  toggle(key: string): void;
};

/** A row. It is drawn again only if it changes, so that a long table responds to every key at once. */
const TableRow = memo(({ row, at, name, columns, isCursor, isOpen, open, ...choice }: TableRowProps) => (
  <tr
    className={isCursor || isOpen ? "cursor" : undefined}
    aria-selected={isOpen || undefined}
    onClick={(event) => open && !isControl(event.target) && open(at)}
    data-opens={open ? "" : undefined}
  >
    {choice.choiceKey !== undefined && <PickCell name={name} {...choice} choiceKey={choice.choiceKey} />}
    {columns.map(({ head, cell, className }, column) => (
      <td key={column} className={className} {...(typeof head === "string" && { "data-head": head })}>
        {column === 0 && open && (
          <button type="button" className="row-open" aria-label={`Open ${name}`} onClick={() => open(at)} />
        )}
        {cell(row)}
      </td>
    ))}
  </tr>
));

type PickProps = { name: string; choiceKey: string; isChosen: boolean; toggle(key: string): void };

/** The box that chooses a row. */
const PickCell = ({ name, choiceKey, isChosen, toggle }: PickProps) => (
  <td className="pick">
    <label>
      <input
        className="check"
        type="checkbox"
        aria-label={`Choose ${name}`}
        checked={isChosen}
        onChange={() => toggle(choiceKey)}
      />
    </label>
  </td>
);

/** Reports whether a press on a row is meant for a button or another control in it. */
export const isControl = (target: EventTarget): boolean =>
  target instanceof Element &&
  target.closest("a, button, input, select, textarea, label, summary, dialog") !== null;

/** Moves a cursor over the rows by the keyboard. Returns the index of its row, or -1. */
function useCursor<Row>(
  { rows, keyOf, open, openKey, choice }: TableProps<Row>,
  body: RefObject<HTMLTableSectionElement | null>,
): number {
  const [at, setAt] = useState(-1);
  const latest = useRef({ rows, keyOf, open, openKey, choice, at });
  latest.current = { rows, keyOf, open, openKey, choice, at };
  useEffect(() => {
    const act = (event: KeyboardEvent): void => {
      if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event)) return;
      const now = latest.current;
      const row = now.rows[now.at];
      const step = { j: 1, k: -1 }[event.key];
      if (step !== undefined) {
        const opened = now.rows.findIndex((one) => now.keyOf(one) === now.openKey);
        const next = Math.max(0, Math.min(now.rows.length - 1, (opened < 0 ? now.at : opened) + step));
        setAt(next);
        const other = now.rows[next];
        // While a row is open beside the list, the next one opens in its place.
        if (opened >= 0 && other !== undefined) return next === opened ? undefined : now.open?.(other);
        const shown = body.current?.rows[next];
        shown?.scrollIntoView({ block: "nearest" });
        shown?.querySelector<HTMLElement>(".row-open")?.focus({ preventScroll: true });
      } else if (event.key === "x" && now.choice) {
        // The row at the cursor, or the row that is open beside the list.
        const chosen = row ?? now.rows.find((one) => now.keyOf(one) === now.openKey);
        if (chosen !== undefined) now.choice.toggle(now.keyOf(chosen));
      } else if (event.key === "Enter" && row !== undefined && !isControl(event.target ?? document))
        now.open?.(row);
    };
    document.addEventListener("keydown", act);
    return () => document.removeEventListener("keydown", act);
  }, [body]);
  return at;
}
