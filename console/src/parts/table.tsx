import type { ReactNode, RefObject } from "react";
import { memo, useCallback, useEffect, useRef, useState } from "react";
import { isTyping } from "../shell/shortcuts.tsx";
import { showHidden } from "./hidden.ts";

/** One column. `className` sets its width, its side, and when it disappears as the table gets narrow. */
export type Column<Row> = { head: ReactNode; className?: string; cell(row: Row): ReactNode };

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
};

/**
 * A table. `j` and `k` move between its rows, and Enter opens one. A row that opens has its own button,
 * which only the keyboard and a screen reader find.
 */
export function Table<Row>(props: TableProps<Row>) {
  const { label, columns, rows, keyOf, nameOf = keyOf, open, openKey, className = "" } = props;
  const body = useRef<HTMLTableSectionElement>(null);
  const cursor = useCursor(props, body);
  const latest = useRef(props);
  latest.current = props;
  const openAt = useCallback((at: number): void => {
    const row = latest.current.rows[at];
    if (row !== undefined) latest.current.open?.(row);
  }, []);
  return (
    <div className="wrap">
      <table className={`table ${className}`} aria-label={label}>
        <thead>
          <tr>
            {columns.map(({ head, className: name }, at) => (
              <th key={at} className={name} scope="col">
                {head}
              </th>
            ))}
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
                name={open && showHidden(nameOf(row))}
                columns={columns}
                isCursor={at === cursor}
                isOpen={key === openKey}
                open={open ? openAt : undefined}
              />
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

type TableRowProps = {
  row: unknown;
  at: number;
  /** The name of a row that opens. */
  name: string | undefined;
  columns: readonly Column<unknown>[];
  isCursor: boolean;
  isOpen: boolean;
  open: ((at: number) => void) | undefined;
};

/** A row. It is drawn again only if it changes, so that a long table responds to every key at once. */
const TableRow = memo(({ row, at, name, columns, isCursor, isOpen, open }: TableRowProps) => (
  <tr
    className={isCursor || isOpen ? "cursor" : undefined}
    aria-selected={isOpen || undefined}
    onClick={(event) => open && !isControl(event.target) && open(at)}
    data-opens={open ? "" : undefined}
  >
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

/** Reports whether a press on a row is meant for a button or another control in it. */
export const isControl = (target: EventTarget): boolean =>
  target instanceof Element &&
  target.closest("a, button, input, select, textarea, label, summary, dialog") !== null;

/** Moves a cursor over the rows by the keyboard. Returns the index of its row, or -1. */
function useCursor<Row>(
  { rows, keyOf, open, openKey }: TableProps<Row>,
  body: RefObject<HTMLTableSectionElement | null>,
): number {
  const [at, setAt] = useState(-1);
  const latest = useRef({ rows, keyOf, open, openKey, at });
  latest.current = { rows, keyOf, open, openKey, at };
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
      } else if (event.key === "Enter" && row !== undefined && !isControl(event.target ?? document))
        now.open?.(row);
    };
    document.addEventListener("keydown", act);
    return () => document.removeEventListener("keydown", act);
  }, [body]);
  return at;
}
