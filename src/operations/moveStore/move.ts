import { createHash } from "node:crypto";
import type { Millis } from "../../engine/core/values/basics.ts";
import { StorageRefused } from "../../engine/store/layout/storageErrors.ts";
import type { Value } from "../../engine/store/layout/table.ts";
import type { DatabaseConnection } from "../../engine/store/sql/database.ts";
import { olderHold } from "../../engine/store/sql/hold.ts";
import {
  findMoved,
  formatMoved,
  formatMovedMark,
  movedMark,
  type MovedStore,
} from "../../engine/store/sql/movedMark.ts";
import { moveMark } from "../../engine/store/sql/schema.ts";
import { readAccepted } from "../../engine/store/sqlite/acceptedClock.ts";
import { maxLead, readLatestUsed } from "../../engine/store/sqlite/storeTime.ts";

// A move copies all rows of all tables from one store to another. Both stores have the schema of this version
// and list their own tables. Rows are copied in the order of their keys, one transaction per batch, so the
// last key in the target shows where an interrupted move continues.

/** A value as a database stores it, without loss: whole numbers are never rounded. */
export type Cell = string | bigint | number | Uint8Array | null;

/** Tables that describe a database and its nodes. They are not moved. */
export const unmovedTables: readonly string[] = ["store_schema", "storage_probe", "nodes"];

/** Reports whether a column is a checksum. Checksums are not moved, because rows on PostgreSQL have none. */
export const isChecksum = (column: string): boolean => column === "checksum" || column === "body_checksum";

/** The columns of a table. `key` lists the columns of its primary key in their order. */
export type TableLayout = {
  name: string;
  columns: readonly { name: string; type: string }[];
  key: readonly string[];
};

/** One side of a move. */
export type MoveEndpoint = {
  /** The name of the store in progress lines, in errors, and in the mark of the source. */
  name: string;
  /** Returns all tables except `unmovedTables`. */
  tables(): Promise<readonly TableLayout[]>;
  /** Runs a statement, with one value for each `?`. */
  query(sql: string, values: readonly Cell[]): Promise<Cell[][]>;
  /** Adds all rows or none. Resolves when they are on the disk. */
  insert(table: TableLayout, rows: readonly Cell[][]): Promise<void>;
  /** Ends the transaction in which a source is read. Resolves when its changes are on the disk. */
  commit(): Promise<void>;
  /**
   * The clock of the database, and how its time is made to continue after a time. Missing if a store takes
   * the latest time from its ids.
   */
  time?: { read(): Promise<Millis>; continueAfter(usedAt: Millis): Promise<void> };
  /** Called after all rows have been copied and compared. */
  finish(): Promise<void>;
  close(): Promise<void>;
};

/**
 * The limits of one batch in rows and, approximately, in bytes. A single row may exceed the limit of bytes.
 */
const batchRows = 1_000;
const batchBytes = 16 * 1024 * 1024;
/** A progress line is reported after every 10 batches. */
const batchesPerLine = 10;

/**
 * Copies all rows, compares both stores, and marks the source as moved. If an earlier move was interrupted,
 * continues there. Throws `StorageRefused` if the target has other data, if the stores differ after the copy,
 * or, without `force`, if the source was moved before. `report` receives progress lines.
 */
export async function move({
  from,
  to,
  report,
  now,
  force = false,
}: {
  from: MoveEndpoint;
  to: MoveEndpoint;
  report(line: string): void;
  now(): Millis;
  force?: boolean;
}): Promise<void> {
  const tables = assertSameTables(await from.tables(), await to.tables());
  if (!force) await assertUnmoved(from, to);
  const usedAt = await findTimeToContinue({ from, to, report });
  await claimTarget(to, tables, report);
  for (const table of tables) await copyTable(table, { from, to, report });
  for (const table of tables) {
    const [source, target] = await Promise.all([digestTable(from, table), digestTable(to, table)]);
    if (source.rows !== target.rows || source.digest !== target.digest) {
      throw new StorageRefused(
        `${table.name}: ${from.name} has ${source.rows} rows with the digest ${source.digest}, ` +
          `${to.name} has ${target.rows} rows with the digest ${target.digest}; ` +
          "the source has changed since the move began: empty the target and start again",
      );
    }
    report(`${table.name}: ${source.rows} rows, identical on both sides, SHA-256 ${source.digest}`);
  }
  if (usedAt !== null) await to.time?.continueAfter(usedAt);
  // The target has the row of an interrupted move if the hold of the source was ended since.
  const isHeld = (await from.query(olderHold.find, [])).length > 0;
  await to.query(isHeld ? olderHold.add : olderHold.remove, []);
  await markMoved(from, { to: to.name, at: new Date(now()).toISOString() });
  await to.query(movedMark.remove, []);
  await to.query(moveMark.remove, []);
  await to.finish();
}

/**
 * Throws if everything in the source was moved before. A source that was marked for this target is allowed as
 * long as the target is unfinished: the move was interrupted between the two.
 */
async function assertUnmoved(from: MoveEndpoint, to: MoveEndpoint): Promise<void> {
  const moved = findMoved((await from.query(movedMark.find, [])).map(([hash]) => hash));
  if (moved === null || (moved.to === to.name && (await isUnfinished(to)))) return;
  throw new StorageRefused(
    `${from.name}: ${formatMoved(moved)}; move it from there, or use --force to move this store again, ` +
      "as it is now",
  );
}

const isUnfinished = async (to: MoveEndpoint): Promise<boolean> =>
  (await to.query(moveMark.find, [])).length > 0;

/**
 * Marks the source before the target loses its mark, so that a server starts on at most one of them at any
 * time. An older mark stays until the new one exists.
 */
async function markMoved(from: MoveEndpoint, moved: MovedStore): Promise<void> {
  const mark = formatMovedMark(moved);
  await from.query(movedMark.add, [mark]);
  await from.query(movedMark.removeOthers, [mark]);
  await from.commit();
}

/** Returns the tables of the source. Throws unless the target has the same tables with the same columns. */
function assertSameTables(
  sourceTables: readonly TableLayout[],
  targetTables: readonly TableLayout[],
): readonly TableLayout[] {
  const formatLayout = ({ name, columns }: TableLayout): string =>
    `${name} (${columns
      .map((column) => column.name)
      .sort()
      .join(", ")})`;
  const sourceLayouts = sourceTables.map(formatLayout).sort();
  const targetLayouts = targetTables.map(formatLayout).sort();
  const different = [
    ...sourceLayouts.filter((shape) => !targetLayouts.includes(shape)),
    ...targetLayouts.filter((shape) => !sourceLayouts.includes(shape)),
  ];
  if (different.length > 0)
    throw new StorageRefused(`the two stores do not have the same tables: ${different.join("; ")}`);
  const withoutKey = sourceTables.find(({ key }) => key.length === 0);
  if (withoutKey) throw new StorageRefused(`${withoutKey.name}: no primary key, so it cannot be moved`);
  return [...sourceTables].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/**
 * Marks an empty store as the target of a move. If the store is marked already, the earlier move continues.
 */
async function claimTarget(
  to: MoveEndpoint,
  tables: readonly TableLayout[],
  report: (line: string) => void,
): Promise<void> {
  if (await isUnfinished(to)) return report(`continuing the earlier move to ${to.name}`);
  const nonEmpty: string[] = [];
  for (const { name } of tables)
    if ((await to.query(`select 1 from ${name} limit 1`, [])).length > 0) nonEmpty.push(name);
  if (nonEmpty.length > 0) {
    throw new StorageRefused(`${to.name}: already has data (${nonEmpty.join(", ")}); choose an empty store`);
  }
  await to.query(moveMark.add, []);
}

type MoveContext = { from: MoveEndpoint; to: MoveEndpoint; report(line: string): void };

/**
 * Returns the latest time in the ids of the source, if the time of the target must continue after it: queues
 * are sent in the order of ids. Throws `StorageRefused` if the clock of the target is more than an hour
 * behind, unless a person has accepted that ids are ahead of the clock.
 */
async function findTimeToContinue({ from, to, report }: MoveContext): Promise<Millis | null> {
  const source = createQuerying(from);
  const usedAt = await readLatestUsed(source);
  const clock = await to.time?.read();
  if (usedAt === null || clock === undefined || usedAt - clock <= maxLead) return usedAt;
  const times =
    `${from.name} has used ${new Date(usedAt).toISOString()}, ` +
    `but the clock of ${to.name} shows ${new Date(clock).toISOString()}`;
  if ((await readAccepted(source, usedAt)) === null)
    throw new StorageRefused(
      `${times}; set the clocks right, and start a server on ${from.name} once, which says what to do`,
    );
  report(`${times}: messages that wait in queues are sent after those that are published from now on`);
  return null;
}

/** Names the columns by their place, and the first one `detail`, which is the name that is used. */
const createQuerying = ({ query }: MoveEndpoint): Pick<DatabaseConnection, "query"> => ({
  query: async (sql, values) =>
    (await query(sql, [...values])).map((cells) =>
      Object.fromEntries(cells.map((cell, index) => [index === 0 ? "detail" : String(index), toValue(cell)])),
    ),
});

const toValue = (cell: Cell): Value => (typeof cell === "bigint" ? Number(cell) : cell);

async function copyTable(table: TableLayout, { from, to, report }: MoveContext): Promise<void> {
  const [[rows = 0] = []] = await from.query(`select count(*) from ${table.name}`, []);
  const [[present = 0] = []] = await to.query(`select count(*) from ${table.name}`, []);
  const descendingKey = table.key.map((column) => `${column} desc`).join(", ");
  const [last = null] = await to.query(
    `select ${table.key.join(", ")} from ${table.name} order by ${descendingKey} limit 1`,
    [],
  );
  let done = Number(present);
  let batches = 0;
  for await (const batch of readBatches(from, table, last)) {
    await to.insert(table, batch);
    done += batch.length;
    if (++batches % batchesPerLine === 0) report(`${table.name}: ${done} of ${String(rows)}`);
  }
  report(`${table.name}: ${done} of ${String(rows)}`);
}

/** Yields all rows after a key, in the order of their keys, with their cells in the order of `columns`. */
async function* readBatches(
  side: MoveEndpoint,
  { name, columns, key }: TableLayout,
  last: readonly Cell[] | null,
): AsyncGenerator<Cell[][]> {
  const order = key.join(", ");
  const placeholders = key.map(() => "?").join(", ");
  const bodySizes = columns
    .filter(({ type }) => /^(text|bytea)$/.test(type))
    .map((column) => `coalesce(length(${column.name}), 0)`);
  const size = bodySizes.length > 0 ? bodySizes.join(" + ") : "0";
  const columnList = columns.map((column) => column.name).join(", ");
  for (let position = last; ;) {
    const afterLast = position === null ? "" : ` where (${order}) > (${placeholders})`;
    const nextKeys = await side.query(
      `select ${order}, ${size} from ${name}${afterLast} order by ${order} limit ${batchRows}`,
      position ?? [],
    );
    if (nextKeys.length === 0) return;
    let count = 0;
    let bytes = 0;
    while (count < nextKeys.length && (count === 0 || bytes < batchBytes))
      bytes += Number(nextKeys[count++]?.at(-1) ?? 0);
    const lastKey = nextKeys[count - 1]?.slice(0, key.length) ?? [];
    const upTo = `${afterLast === "" ? " where" : `${afterLast} and`} (${order}) <= (${placeholders})`;
    yield await side.query(`select ${columnList} from ${name}${upTo} order by ${order}`, [
      ...(position ?? []),
      ...lastKey,
    ]);
    position = lastKey;
  }
}

/**
 * Returns a digest of all rows of a table. Equal rows have equal digests in both stores, regardless of how
 * the rows are divided into batches.
 */
async function digestTable(
  side: MoveEndpoint,
  table: TableLayout,
): Promise<{ rows: number; digest: string }> {
  const hash = createHash("sha256");
  let rows = 0;
  for await (const batch of readBatches(side, table, null)) {
    rows += batch.length;
    for (const row of batch) for (const cell of row) updateHash(hash, cell);
  }
  return { rows, digest: hash.digest("hex") };
}

/** Hashes a cell with its type and length, so that no two different rows hash alike. */
function updateHash(hash: ReturnType<typeof createHash>, cell: Cell): void {
  if (cell === null) return void hash.update("-");
  if (typeof cell === "bigint" || typeof cell === "number")
    return void hash.update(`${typeof cell} ${cell};`);
  const bytes = typeof cell === "string" ? Buffer.from(cell) : cell;
  hash.update(`${typeof cell === "string" ? "text" : "bytes"} ${bytes.byteLength};`).update(bytes);
}
