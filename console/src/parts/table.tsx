import type { ReactNode } from "react";
import { useEffect, useRef, useState } from "react";
import { isTyping } from "../shell/keys.tsx";

/** One column. `className` sets its width, its side, and when it disappears as the table gets narrow. */
export type Column<Row> = { head: ReactNode; className?: string; cell(row: Row): ReactNode };

type TableProps<Row> = {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf(row: Row): string;
  /** Opens a row: by Enter, or by a press on the row outside its buttons and links. */
  open?: (row: Row) => void;
  /** The key of the row that is open. */
  openKey?: string | undefined;
  className?: string;
};

/** A table. `j` and `k` move between its rows, and Enter opens one. */
export function Table<Row>(props: TableProps<Row>) {
  const { label, columns, rows, keyOf, open, openKey, className = "" } = props;
  const cursor = useCursor(props);
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
        <tbody>
          {rows.map((row, at) => {
            const key = keyOf(row);
            return (
              <tr
                key={key}
                id={`row-${at}`}
                className={at === cursor || key === openKey ? "cursor" : undefined}
                aria-selected={key === openKey || undefined}
                onClick={(event) => open && !isControl(event.target) && open(row)}
                data-opens={open ? "" : undefined}
              >
                {columns.map(({ cell, className: name }, column) => (
                  <td key={column} className={name}>
                    {cell(row)}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

const isControl = (target: EventTarget): boolean =>
  target instanceof Element &&
  target.closest("a, button, input, select, textarea, label, summary, dialog") !== null;

/** Moves a cursor over the rows by the keyboard. Returns the index of its row, or -1. */
function useCursor<Row>({ rows, open }: TableProps<Row>): number {
  const [at, setAt] = useState(-1);
  const latest = useRef({ rows, open, at });
  latest.current = { rows, open, at };
  useEffect(() => {
    const act = (event: KeyboardEvent): void => {
      if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event)) return;
      const now = latest.current;
      const row = now.rows[now.at];
      const step = { j: 1, k: -1 }[event.key];
      if (step !== undefined) {
        const next = Math.max(0, Math.min(now.rows.length - 1, now.at + step));
        setAt(next);
        document.querySelector(`#row-${next}`)?.scrollIntoView({ block: "nearest" });
      } else if (event.key === "Enter" && row !== undefined && !isControl(event.target ?? document))
        now.open?.(row);
    };
    document.addEventListener("keydown", act);
    return () => document.removeEventListener("keydown", act);
  }, []);
  return at;
}
