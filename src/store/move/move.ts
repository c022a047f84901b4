import { createHash } from "node:crypto";
import { moveMark } from "../sql/schema.ts";
import { StorageRefused } from "../store.ts";

// Everything of one store is moved into another one, whatever tables there are: both have the schema of this version, and
// say themselves what they have. Rows go in the order of their keys, each batch in a transaction, so what is there already
// tells where to go on.

/** As a database keeps it, without any loss: whole numbers are never rounded. */
export type Cell = string | bigint | number | Uint8Array | null;

/** Tables that describe a database and its nodes, not the data in it. */
export const unmovedTables: readonly string[] = ["store_schema", "storage_probe", "nodes"];

/** Reports whether a column is not moved: on PostgreSQL rows have no checksums. */
export const isChecksum = (column: string): boolean => column === "checksum" || column === "body_checksum";

/** `key`: the columns of its primary key, in their order. */
export type TableLayout = { name: string; columns: readonly { name: string; type: string }[]; key: readonly string[] };

/** One of the two stores. */
export type MoveEndpoint = {
  /** For people. */
  name: string;
  /** All tables but those of `unmovedTables`. */
  tables(): Promise<readonly TableLayout[]>;
  /** Runs a statement; `?` stand for the values. */
  query(sql: string, values: readonly Cell[]): Promise<Cell[][]>;
  /** Adds rows, all or none, on the disk when it answers. */
  insert(table: TableLayout, rows: readonly Cell[][]): Promise<void>;
  /** Called when everything is there. */
  finish(): Promise<void>;
  close(): Promise<void>;
};

/** Rows of one batch, and about so many bytes: a row alone may be larger. */
const batchRows = 1_000;
const batchBytes = 16 * 1024 * 1024;
/** After so many batches a line tells how far it is. */
const batchesPerLine = 10;

/**
 * Copies all rows, from where an earlier call was interrupted, and then compares both sides. Throws when the target has
 * other data, and when the two are not the same in the end. `say`: takes lines for people.
 */
export async function move({ from, to, report }: { from: MoveEndpoint; to: MoveEndpoint; report(line: string): void }): Promise<void> {
  const tables = requireSameTables(await from.tables(), await to.tables());
  await claimTarget(to, tables, report);
  for (const table of tables) await copyTable(table, { from, to, report });
  for (const table of tables) {
    const [source, target] = await Promise.all([digestTable(from, table), digestTable(to, table)]);
    if (source.rows !== target.rows || source.digest !== target.digest) {
      throw new StorageRefused(
        `${table.name}: ${from.name} has ${source.rows} rows with the digest ${source.digest}, ${to.name} has ${target.rows} with ${target.digest}; ` +
          "the source was changed since the move began: empty the target, and begin again",
      );
    }
    report(`${table.name}: ${source.rows} rows, the same on both sides, SHA-256 ${source.digest}`);
  }
  await to.query(moveMark.remove, []);
  await to.finish();
}

/** Both have the same tables with the same columns. The keys are those of the source. */
function requireSameTables(sourceTables: readonly TableLayout[], targetTables: readonly TableLayout[]): readonly TableLayout[] {
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
  if (different.length > 0) throw new StorageRefused(`the two stores do not have the same tables: ${different.join("; ")}`);
  const withoutKey = sourceTables.find(({ key }) => key.length === 0);
  if (withoutKey) throw new StorageRefused(`${withoutKey.name}: cannot be moved, because it has no primary key`);
  return [...sourceTables].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** An empty store becomes the target of a move; one that is a target already goes on to be. */
async function claimTarget(to: MoveEndpoint, tables: readonly TableLayout[], report: (line: string) => void): Promise<void> {
  const unfinished = await to.query(moveMark.find, []);
  if (unfinished.length > 0) return report(`going on with what was moved to ${to.name} before`);
  const nonEmpty: string[] = [];
  for (const { name } of tables) if ((await to.query(`select 1 from ${name} limit 1`, [])).length > 0) nonEmpty.push(name);
  if (nonEmpty.length > 0) {
    throw new StorageRefused(`${to.name}: there is other data already (${nonEmpty.join(", ")}); name an empty one`);
  }
  await to.query(moveMark.add, []);
}

type MoveContext = { from: MoveEndpoint; to: MoveEndpoint; report(line: string): void };

async function copyTable(table: TableLayout, { from, to, report }: MoveContext): Promise<void> {
  const [[rows = 0] = []] = await from.query(`select count(*) from ${table.name}`, []);
  const [[present = 0] = []] = await to.query(`select count(*) from ${table.name}`, []);
  const descendingKey = table.key.map((column) => `${column} desc`).join(", ");
  const [last = null] = await to.query(`select ${table.key.join(", ")} from ${table.name} order by ${descendingKey} limit 1`, []);
  let done = Number(present);
  let batches = 0;
  for await (const batch of readBatches(from, table, last)) {
    await to.insert(table, batch);
    done += batch.length;
    if (++batches % batchesPerLine === 0) report(`${table.name}: ${done} of ${String(rows)}`);
  }
  report(`${table.name}: ${done} of ${String(rows)}`);
}

/** All rows behind a key, in the order of their keys, with their cells in the order of `columns`. */
async function* readBatches(
  side: MoveEndpoint,
  { name, columns, key }: TableLayout,
  last: readonly Cell[] | null,
): AsyncGenerator<Cell[][]> {
  const order = key.join(", ");
  const placeholders = key.map(() => "?").join(", ");
  const bodySizes = columns.filter(({ type }) => /^(text|bytea)$/.test(type)).map((column) => `coalesce(length(${column.name}), 0)`);
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
    while (count < nextKeys.length && (count === 0 || bytes < batchBytes)) bytes += Number(nextKeys[count++]?.at(-1) ?? 0);
    const lastKey = nextKeys[count - 1]?.slice(0, key.length) ?? [];
    const upTo = `${afterLast === "" ? " where" : `${afterLast} and`} (${order}) <= (${placeholders})`;
    yield await side.query(`select ${columnList} from ${name}${upTo} order by ${order}`, [...(position ?? []), ...lastKey]);
    position = lastKey;
  }
}

/** The same for the same rows, on whichever side, and however they are read. */
async function digestTable(side: MoveEndpoint, table: TableLayout): Promise<{ rows: number; digest: string }> {
  const hash = createHash("sha256");
  let rows = 0;
  for await (const batch of readBatches(side, table, null)) {
    rows += batch.length;
    for (const row of batch) for (const cell of row) updateHash(hash, cell);
  }
  return { rows, digest: hash.digest("hex") };
}

/** Each cell with what it is and how long it is, so that no two rows read alike. */
function updateHash(hash: ReturnType<typeof createHash>, cell: Cell): void {
  if (cell === null) return void hash.update("-");
  if (typeof cell === "bigint" || typeof cell === "number") return void hash.update(`${typeof cell} ${cell};`);
  const bytes = typeof cell === "string" ? Buffer.from(cell) : cell;
  hash.update(`${typeof cell === "string" ? "text" : "bytes"} ${bytes.byteLength};`).update(bytes);
}
