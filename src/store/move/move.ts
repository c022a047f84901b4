import { createHash } from "node:crypto";
import { moveMark } from "../sql/schema.ts";
import { StorageRefused } from "../store.ts";

// Everything of one store is moved into another one, whatever tables there are: both have the schema of this version, and
// say themselves what they have. Rows go in the order of their keys, each batch in a transaction, so what is there already
// tells where to go on.

/** As a database keeps it, without any loss: whole numbers are never rounded. */
export type Cell = string | bigint | number | Uint8Array | null;

/** Tables that describe a database and its nodes, not the data in it. */
export const notMoved: readonly string[] = ["store_schema", "storage_probe", "nodes"];

/** Reports whether a column is not moved: on PostgreSQL rows have no checksums. */
export const isChecksum = (column: string): boolean => column === "checksum" || column === "body_checksum";

/** `key`: the columns of its primary key, in their order. */
export type MovedTable = { name: string; columns: readonly { name: string; type: string }[]; key: readonly string[] };

/** One of the two stores. */
export type Side = {
  /** For people. */
  name: string;
  /** All tables but those of `notMoved`. */
  tables(): Promise<readonly MovedTable[]>;
  /** Runs a statement; `?` stand for the values. */
  query(sql: string, values: readonly Cell[]): Promise<Cell[][]>;
  /** Adds rows, all or none, on the disk when it answers. */
  insert(table: MovedTable, rows: readonly Cell[][]): Promise<void>;
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
export async function move({ from, to, say }: { from: Side; to: Side; say(line: string): void }): Promise<void> {
  const tables = sameTables(await from.tables(), await to.tables());
  await claimTarget(to, tables, say);
  for (const table of tables) await copy(table, { from, to, say });
  for (const table of tables) {
    const [here, there] = await Promise.all([digestOf(from, table), digestOf(to, table)]);
    if (here.rows !== there.rows || here.digest !== there.digest) {
      throw new StorageRefused(
        `${table.name}: ${from.name} has ${here.rows} rows with the digest ${here.digest}, ${to.name} has ${there.rows} with ${there.digest}; ` +
          "the source was changed since the move began: empty the target, and begin again",
      );
    }
    say(`${table.name}: ${here.rows} rows, the same on both sides, SHA-256 ${here.digest}`);
  }
  await to.query(moveMark.remove, []);
  await to.finish();
}

/** Both have the same tables with the same columns. The keys are those of the source. */
function sameTables(here: readonly MovedTable[], there: readonly MovedTable[]): readonly MovedTable[] {
  const shapeOf = ({ name, columns }: MovedTable): string =>
    `${name} (${columns
      .map((column) => column.name)
      .sort()
      .join(", ")})`;
  const [left, right] = [here.map(shapeOf).sort(), there.map(shapeOf).sort()];
  const different = [...left.filter((shape) => !right.includes(shape)), ...right.filter((shape) => !left.includes(shape))];
  if (different.length > 0) throw new StorageRefused(`the two stores do not have the same tables: ${different.join("; ")}`);
  const keyless = here.find(({ key }) => key.length === 0);
  if (keyless) throw new StorageRefused(`${keyless.name}: cannot be moved, because it has no primary key`);
  return [...here].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** An empty store becomes the target of a move; one that is a target already goes on to be. */
async function claimTarget(to: Side, tables: readonly MovedTable[], say: (line: string) => void): Promise<void> {
  const marks = await to.query(moveMark.find, []);
  if (marks.length > 0) return say(`going on with what was moved to ${to.name} before`);
  const full: string[] = [];
  for (const { name } of tables) if ((await to.query(`select 1 from ${name} limit 1`, [])).length > 0) full.push(name);
  if (full.length > 0) {
    throw new StorageRefused(`${to.name}: there is other data already (${full.join(", ")}); name an empty one`);
  }
  await to.query(moveMark.add, []);
}

type Moving = { from: Side; to: Side; say(line: string): void };

async function copy(table: MovedTable, { from, to, say }: Moving): Promise<void> {
  const [[rows = 0] = []] = await from.query(`select count(*) from ${table.name}`, []);
  const [[present = 0] = []] = await to.query(`select count(*) from ${table.name}`, []);
  const backwards = table.key.map((column) => `${column} desc`).join(", ");
  const [last = null] = await to.query(`select ${table.key.join(", ")} from ${table.name} order by ${backwards} limit 1`, []);
  let [done, batches] = [Number(present), 0];
  for await (const batch of batchesOf(from, table, last)) {
    await to.insert(table, batch);
    done += batch.length;
    if (++batches % batchesPerLine === 0) say(`${table.name}: ${done} of ${String(rows)}`);
  }
  say(`${table.name}: ${done} of ${String(rows)}`);
}

/** All rows behind a key, in the order of their keys, with their cells in the order of `columns`. */
async function* batchesOf(side: Side, { name, columns, key }: MovedTable, last: readonly Cell[] | null): AsyncGenerator<Cell[][]> {
  const order = key.join(", ");
  const places = key.map(() => "?").join(", ");
  const large = columns.filter(({ type }) => /^(text|bytea)$/.test(type)).map((column) => `coalesce(length(${column.name}), 0)`);
  const size = large.length > 0 ? large.join(" + ") : "0";
  const all = columns.map((column) => column.name).join(", ");
  for (let at = last; ;) {
    const behind = at === null ? "" : ` where (${order}) > (${places})`;
    const ahead = await side.query(`select ${order}, ${size} from ${name}${behind} order by ${order} limit ${batchRows}`, at ?? []);
    if (ahead.length === 0) return;
    let [count, bytes] = [0, 0];
    while (count < ahead.length && (count === 0 || bytes < batchBytes)) bytes += Number(ahead[count++]?.at(-1) ?? 0);
    const until = ahead[count - 1]?.slice(0, key.length) ?? [];
    const upTo = `${behind === "" ? " where" : `${behind} and`} (${order}) <= (${places})`;
    yield await side.query(`select ${all} from ${name}${upTo} order by ${order}`, [...(at ?? []), ...until]);
    at = until;
  }
}

/** The same for the same rows, on whichever side, and however they are read. */
async function digestOf(side: Side, table: MovedTable): Promise<{ rows: number; digest: string }> {
  const hash = createHash("sha256");
  let rows = 0;
  for await (const batch of batchesOf(side, table, null)) {
    rows += batch.length;
    for (const row of batch) for (const cell of row) feed(hash, cell);
  }
  return { rows, digest: hash.digest("hex") };
}

/** Each cell with what it is and how long it is, so that no two rows read alike. */
function feed(hash: ReturnType<typeof createHash>, cell: Cell): void {
  if (cell === null) return void hash.update("-");
  if (typeof cell === "bigint" || typeof cell === "number") return void hash.update(`${typeof cell} ${cell};`);
  const bytes = typeof cell === "string" ? Buffer.from(cell) : cell;
  hash.update(`${typeof cell === "string" ? "text" : "bytes"} ${bytes.byteLength};`).update(bytes);
}
