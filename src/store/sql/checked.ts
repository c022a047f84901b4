import { crc32 } from "node:zlib";
import { damagedEnvelope, damagedGroup, damagedLetter, damagedSchedule, damagedStep } from "../../core/sending/damaged.ts";
import type { Columns, Table, Tables, Value } from "./table.ts";

/** The columns of checksums: CRC-32 of the columns of a row besides its body, and of its body. Null on PostgreSQL, and not checked. */
const sums = { checksum: "integer", body_checksum: "integer" } as const;

/** A row that cannot be trusted is marked. It has no body, and no settings if these may be altered. */
type Spoilable = { damaged?: true };

/** Returns the tables; those whose content is sent, or says what is sent, with checksums. */
export function withChecksums(tables: Tables): Tables {
  const text = (value: Value | undefined): string => (typeof value === "string" ? value : "");
  const number = (value: Value | undefined): number | null => (typeof value === "number" ? value : null);
  const named = ({ account, id }: Columns): { account: string; id: string } => ({ account: text(account), id: text(id) });
  const never = (): boolean => false;
  return {
    ...tables,
    envelopes: checked(tables.envelopes, (row) => damagedEnvelope(named(row)), never),
    deadLetters: checked(tables.deadLetters, (row) => damagedLetter({ ...named(row), messageId: text(row.message_id) })),
    groups: checked(tables.groups, (row) => damagedGroup({ account: text(row.account), name: text(row.name) })),
    schedules: checked(tables.schedules, (row) => damagedSchedule({ ...named(row), dueAt: number(row.due_at) })),
    steps: checked(tables.steps, (row) => damagedStep({ ...named(row), position: number(row.position) ?? 0 }), never),
  };
}

/**
 * Returns a table whose rows are checked when they are read. A row that is damaged is read as `unknown` makes it of its columns. If its body
 * alone is damaged, the rest of it is kept.
 */
function checked<Row extends Spoilable>(
  table: Table<Row>,
  unknown: (columns: Columns) => Row,
  isKept: (row: Row) => boolean = () => true,
): Table<Row> {
  return {
    ...table,
    columns: { ...table.columns, ...sums },
    write: (row, seals) => {
      if (row.damaged && !isKept(row)) throw new Error(`${table.name}: a damaged row is not written again`);
      return withSums(table.write(row, seals));
    },
    read: (columns, seals) => {
      if (!isWhole(columns)) return unknown(columns);
      try {
        const row = table.read(columns, seals);
        return isBodyWhole(columns) ? row : { ...table.read({ ...columns, body: null }, seals), damaged: true };
      } catch (error) {
        // It has no checksum, and is not JSON any longer.
        if (error instanceof SyntaxError) return unknown(columns);
        throw error;
      }
    },
  };
}

/** Takes the checksums away, if the table has any. */
export function unchecked(columns: Columns): Columns {
  if ("checksum" in columns) [columns.checksum, columns.body_checksum] = [null, null];
  return columns;
}

/** Reports whether all of a row is as it was written, as far as it was read. */
export const isIntact = (columns: Columns): boolean => isWhole(columns) && isBodyWhole(columns);

/** The sum of a body is among the columns that the other one is made of, so that neither can be lost alone. */
function withSums(columns: Columns): Columns {
  // In their order.
  columns.checksum = null;
  columns.body_checksum = sumOfBody(columns.body);
  columns.checksum = sumOfRest(columns);
  return columns;
}

const isWhole = (columns: Columns): boolean => (columns.checksum ?? null) === null || columns.checksum === sumOfRest(columns);

const isBodyWhole = ({ checksum, body, body_checksum: ofBody }: Columns): boolean =>
  (checksum ?? null) === null || body === undefined || ofBody === sumOfBody(body);

/** Signed, as the databases keep numbers of 32 bits. */
const sumOfBody = (body: Value | undefined): number => (body instanceof Uint8Array ? crc32(body) | 0 : 0);

function sumOfRest(columns: Columns): number {
  let text = "";
  for (const name in columns) if (name !== "checksum" && name !== "body") text += `${String(columns[name] ?? "")}\n`;
  return crc32(text) | 0;
}
