import { crc32 } from "node:zlib";
import { damagedMessage, damagedUrlGroup, damagedDeadLetter, damagedSchedule, damagedStep } from "../../core/sending/damaged.ts";
import type { Columns, Table, Tables, Value } from "./table.ts";

/** The columns of checksums: CRC-32 of the columns of a row besides its body, and of its body. Null on PostgreSQL, and not checked. */
const checksumColumns = { checksum: "integer", body_checksum: "integer" } as const;

/** A row that cannot be trusted is marked. It has no body, and no settings if these may be altered. */
type Damageable = { damaged?: true };

/** Returns the tables; those whose content is sent, or says what is sent, with checksums. */
export function withChecksums(tables: Tables): Tables {
  const text = (value: Value | undefined): string => (typeof value === "string" ? value : "");
  const number = (value: Value | undefined): number | null => (typeof value === "number" ? value : null);
  const toRowId = ({ account, id }: Columns): { account: string; id: string } => ({ account: text(account), id: text(id) });
  const never = (): boolean => false;
  return {
    ...tables,
    storedMessages: withRowChecksums(tables.storedMessages, (row) => damagedMessage(toRowId(row)), never),
    deadLetters: withRowChecksums(tables.deadLetters, (row) => damagedDeadLetter({ ...toRowId(row), messageId: text(row.message_id) })),
    urlGroups: withRowChecksums(tables.urlGroups, (row) => damagedUrlGroup({ account: text(row.account), name: text(row.name) })),
    schedules: withRowChecksums(tables.schedules, (row) => damagedSchedule({ ...toRowId(row), dueAt: number(row.due_at) })),
    steps: withRowChecksums(tables.steps, (row) => damagedStep({ ...toRowId(row), position: number(row.position) ?? 0 }), never),
  };
}

/**
 * Returns a table whose rows are checked when they are read. A row that is damaged is read as `makeDamaged` makes it of its columns. If its body
 * alone is damaged, the rest of it is kept.
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
      if (row.damaged && !isBodyOnly(row)) throw new Error(`${table.name}: a damaged row is not written again`);
      return addChecksums(table.write(row, cipher));
    },
    read: (columns, cipher) => {
      if (!isRowIntact(columns)) return makeDamaged(columns);
      try {
        const row = table.read(columns, cipher);
        return isBodyIntact(columns) ? row : { ...table.read({ ...columns, body: null }, cipher), damaged: true };
      } catch (error) {
        // It has no checksum, and is not JSON any longer.
        if (error instanceof SyntaxError) return makeDamaged(columns);
        throw error;
      }
    },
  };
}

/** Takes the checksums away, if the table has any. */
export function clearChecksums(columns: Columns): Columns {
  if ("checksum" in columns) {
    columns.checksum = null;
    columns.body_checksum = null;
  }
  return columns;
}

/** Reports whether all of a row is as it was written, as far as it was read. */
export const isIntact = (columns: Columns): boolean => isRowIntact(columns) && isBodyIntact(columns);

/** The sum of a body is among the columns that the other one is made of, so that neither can be lost alone. */
function addChecksums(columns: Columns): Columns {
  // In their order.
  columns.checksum = null;
  columns.body_checksum = checksumBody(columns.body);
  columns.checksum = checksumRow(columns);
  return columns;
}

const isRowIntact = (columns: Columns): boolean => (columns.checksum ?? null) === null || columns.checksum === checksumRow(columns);

const isBodyIntact = ({ checksum, body, body_checksum: bodySum }: Columns): boolean =>
  (checksum ?? null) === null || body === undefined || bodySum === checksumBody(body);

/** Signed, as the databases keep numbers of 32 bits. */
const checksumBody = (body: Value | undefined): number => (body instanceof Uint8Array ? crc32(body) | 0 : 0);

function checksumRow(columns: Columns): number {
  let text = "";
  for (const name in columns) if (name !== "checksum" && name !== "body") text += `${String(columns[name] ?? "")}\n`;
  return crc32(text) | 0;
}
