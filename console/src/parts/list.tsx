import type { ReactNode } from "react";
import { Button } from "./basics.tsx";
import { download } from "./download.ts";
import { toCsvFile, toJsonFile } from "./exportRows.ts";
import { Pager, useFilters } from "./filters.tsx";
import { Panel } from "./panel.tsx";
import { useSorting } from "./sorting.ts";
import type { Choice, Column } from "./table.tsx";
import { Table } from "./table.tsx";
import { formatMany } from "./words.ts";

type ListPanelProps<Row> = {
  /** The name of the table for a screen reader. */
  label: string;
  title?: string;
  sub?: ReactNode;
  end?: ReactNode;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf(row: Row): string;
  nameOf?: (row: Row) => string;
  open?: ((row: Row) => void) | undefined;
  openKey?: string | undefined;
  className?: string;
  /** Shown in place of the table if there are no rows. */
  empty: ReactNode;
  /** The words for one and for several rows. With them, the panel has a foot with the count. */
  words?: readonly [one: string, many: string];
  /** The next page, if the list has pages. */
  cursor?: string | undefined;
  /** Replaces the count in the foot. */
  foot?: ReactNode;
  /** The number of rows that wait until the person asks for them. */
  newCount?: number;
  showNew?: () => void;
  /** With it, rows can be chosen. */
  choice?: Choice | undefined;
};

/** Buttons that save the listed rows, as the API has them. */
const ExportButtons = ({ label, rows }: { label: string; rows: readonly unknown[] }) => {
  const name = label.toLowerCase().replaceAll(/[^a-z]+/g, "-");
  return (
    <span className="actions only-wide">
      <Button
        kind="ghost"
        isSmall
        aria-label={`Save as CSV: ${label}`}
        onClick={() => download(toCsvFile(rows), `${name}.csv`)}
      >
        CSV
      </Button>
      <Button
        kind="ghost"
        isSmall
        aria-label={`Save as JSON: ${label}`}
        onClick={() => download(toJsonFile(rows), `${name}.json`)}
      >
        JSON
      </Button>
    </span>
  );
};

/** A list in a panel: its rows, or why there are none, and the way to the next page. */
export function ListPanel<Row>(props: ListPanelProps<Row>) {
  const { label, title, sub, end, empty, words, cursor, foot, newCount = 0, showNew } = props;
  const { values } = useFilters();
  // Only a list that is loaded as a whole can be sorted here.
  const isWhole = cursor === undefined && values["cursor"] === undefined;
  const { rows, sorting } = useSorting(isWhole ? props.columns : [], props.rows);
  // A page can be empty, and still have one before it.
  const hasFoot = rows.length > 0 || cursor !== undefined || values["cursor"] !== undefined;
  const { columns, keyOf, nameOf, open, openKey, className = "two cards" } = props;
  return (
    <Panel
      sub={sub}
      end={end}
      {...(title !== undefined && { title })}
      footer={
        (words ?? foot) &&
        hasFoot && (
          <>
            {foot ?? (words && <span role="status">{formatMany(rows.length, ...words)}</span>)}
            {rows.length > 0 && <ExportButtons label={label} rows={rows} />}
            <Pager cursor={cursor} />
          </>
        )
      }
    >
      {newCount > 0 && (
        <button type="button" className="newbar" onClick={showNew}>
          {newCount} new
        </button>
      )}
      {/* It is there before it has text, so that a screen reader reads the text when it comes. */}
      <div role="status">{rows.length === 0 && empty}</div>
      {rows.length > 0 && (
        <Table
          label={label}
          className={className}
          columns={columns}
          rows={rows}
          keyOf={keyOf}
          nameOf={nameOf}
          openKey={openKey}
          sorting={sorting}
          choice={props.choice}
          {...(open && { open })}
        />
      )}
    </Panel>
  );
}
