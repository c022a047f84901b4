import type { ReactNode } from "react";
import { useEffect, useRef, useState } from "react";
import { isTyping } from "../shell/keys.tsx";

/** One column. `className` sets its width, its side, and when it leaves as the table gets narrow. */
export type Column<Row> = { head: ReactNode; className?: string; cell(row: Row): ReactNode };

type TableProps<Row> = {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf(row: Row): string;
  /** Opens a row: by Enter, and by a press anywhere on it that is no button or link. */
  open?: (row: Row) => void;
  /** The key of the row that is open. */
  openKey?: string | undefined;
  chosen?: Chosen | undefined;
  className?: string;
};

/** Rows that are chosen, by their keys. */
export type Chosen = {
  keys: ReadonlySet<string>;
  toggle(key: string): void;
  all(keys: readonly string[]): void;
};

/** A table whose rows are reached by `j` and `k`, opened by Enter and chosen by `x`. */
export function Table<Row>(props: TableProps<Row>) {
  const { label, columns, rows, keyOf, open, openKey, chosen, className = "" } = props;
  const cursor = useCursor(props);
  const keys = rows.map(keyOf);
  return (
    <div className="wrap">
      <table className={`table ${className}`} aria-label={label}>
        <thead>
          <tr>
            {chosen && (
              <th className="pick">
                <input
                  type="checkbox"
                  className="check"
                  aria-label="Choose all rows"
                  checked={keys.length > 0 && keys.every((key) => chosen.keys.has(key))}
                  onChange={() => chosen.all(keys)}
                />
              </th>
            )}
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
                aria-selected={key === openKey || chosen?.keys.has(key) || undefined}
                onClick={(event) => open && !isControl(event.target) && open(row)}
                data-opens={open ? "" : undefined}
              >
                {chosen && (
                  <td className="pick">
                    <input
                      type="checkbox"
                      className="check"
                      aria-label={`Choose ${key}`}
                      checked={chosen.keys.has(key)}
                      onChange={() => chosen.toggle(key)}
                    />
                  </td>
                )}
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
  target instanceof Element && target.closest("a, button, input, select, label, summary") !== null;

/** Moves a cursor over the rows by the keyboard. Returns the place of its row, or -1. */
function useCursor<Row>({ rows, keyOf, open, chosen }: TableProps<Row>): number {
  const [at, setAt] = useState(-1);
  const latest = useRef({ rows, keyOf, open, chosen, at });
  latest.current = { rows, keyOf, open, chosen, at };
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
      else if (event.key === "x" && row !== undefined) now.chosen?.toggle(now.keyOf(row));
    };
    document.addEventListener("keydown", act);
    return () => document.removeEventListener("keydown", act);
  }, []);
  return at;
}
