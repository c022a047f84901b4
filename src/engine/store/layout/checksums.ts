import { crc32 } from "node:zlib";
import {
  damagedMessage,
  damagedUrlGroup,
  damagedDeadLetter,
  damagedSchedule,
  damagedStep,
} from "../../core/model/damagedRows.ts";
import type { Columns, Table, Tables, Value } from "./table.ts";

/**
 * The checksum columns: the CRC-32 of all columns except the body, and the CRC-32 of the body. On PostgreSQL
 * they are null and not checked.
 */
const checksumColumns = { checksum: "integer", body_checksum: "integer" } as const;

/**
 * A row whose checksum does not match is marked as damaged. It has no body. If more than the body may be
 * altered, it also has none of its settings.
 */
type Damageable = { damaged?: true };

/** Returns the tables, with checksums on those whose content is sent or determines what is sent. */
export function withChecksums(tables: Tables): Tables {
  const text = (value: Value | undefined): string => (typeof value === "string" ? value : "");
  const number = (value: Value | undefined): number | null => (typeof value === "number" ? value : null);
  const toRowId = ({ account, id }: Columns): { account: string; id: string } => ({
    account: text(account),
    id: text(id),
  });
  const isNeverBodyOnly = (): boolean => false;
  return {
    ...tables,
    storedMessages: withRowChecksums(
      tables.storedMessages,
      (row) => damagedMessage(toRowId(row)),
      isNeverBodyOnly,
    ),
    deadLetters: withRowChecksums(tables.deadLetters, (row) =>
      damagedDeadLetter({ ...toRowId(row), messageId: text(row.message_id) }),
    ),
    urlGroups: withRowChecksums(tables.urlGroups, (row) =>
      damagedUrlGroup({ account: text(row.account), name: text(row.name) }),
    ),
    schedules: withRowChecksums(tables.schedules, (row) =>
      damagedSchedule({ ...toRowId(row), dueAt: number(row.due_at) }),
    ),
    steps: withRowChecksums(
      tables.steps,
      (row) => damagedStep({ ...toRowId(row), position: number(row.position) ?? 0 }),
      isNeverBodyOnly,
    ),
  };
}

/**
 * Returns a table whose rows are checked when they are read. A damaged row is replaced by the result of
 * `makeDamaged`. If only the body is damaged, the other fields of the row are kept.
 */
function withRowChecksums<Row extends Damageable>(
  table: Table<Row>,
  makeDamaged: (columns: Columns) => Row,
  isBodyOnly: (row: Row) => boolean = () => true,
): Table<Row> {
  return {
    ...table,
    columns: { ...table.columns, ...checksumColumns },
    write: (row, cipher) => {
      if (row.damaged && !isBodyOnly(row))
        throw new Error(`${table.name}: a damaged row is not written again`);
      return addChecksums(table.write(row, cipher));
    },
    read: (columns, cipher) => {
      if (!isRowIntact(columns)) return makeDamaged(columns);
      try {
        const row = table.read(columns, cipher);
        return isBodyIntact(columns)
          ? row
          : { ...table.read({ ...columns, body: null }, cipher), damaged: true };
      } catch (error) {
        // The row has no checksum, and its detail is not valid JSON, so the row is damaged.
        if (error instanceof SyntaxError) return makeDamaged(columns);
        throw error;
      }
    },
  };
}

/** Sets the checksums to null if the table has any. */
export function clearChecksums(columns: Columns): Columns {
  if ("checksum" in columns) {
    columns.checksum = null;
    columns.body_checksum = null;
  }
  return columns;
}

/** Reports whether the columns that were read of a row still match their checksums. */
export const isIntact = (columns: Columns): boolean => isRowIntact(columns) && isBodyIntact(columns);

/**
 * The checksum of the row also covers the column with the checksum of the body, so
 * losing either is detected.
 */
function addChecksums(columns: Columns): Columns {
  // The order of these assignments is the order of the columns.
  columns.checksum = null;
  columns.body_checksum = checksumBody(columns.body);
  columns.checksum = checksumRow(columns);
  return columns;
}

const isRowIntact = (columns: Columns): boolean =>
  (columns.checksum ?? null) === null || columns.checksum === checksumRow(columns);

const isBodyIntact = ({ checksum, body, body_checksum: bodySum }: Columns): boolean =>
  (checksum ?? null) === null || body === undefined || bodySum === checksumBody(body);

/** The checksum is signed, because the databases store 32-bit integers as signed numbers. */
const checksumBody = (body: Value | undefined): number => (body instanceof Uint8Array ? crc32(body) | 0 : 0);

function checksumRow(columns: Columns): number {
  let text = "";
  for (const name in columns)
    if (name !== "checksum" && name !== "body") text += `${String(columns[name] ?? "")}\n`;
  return crc32(text) | 0;
}
