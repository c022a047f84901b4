import type { Client } from "pg";
import { types } from "pg";
import type { CustomTypesConfig } from "pg";
import type { Millis } from "../../engine/core/values/basics.ts";
import { createPartitionsFor } from "../../engine/store/postgres/partitions.ts";
import type { Cell, TableLayout, MoveEndpoint } from "./move.ts";
import { isChecksum, unmovedTables } from "./move.ts";
import { StorageRefused } from "../../engine/store/layout/storageErrors.ts";
import { readSqlState } from "../../engine/store/postgres/databaseErrors.ts";
import { assertOwnConnections } from "../../engine/store/postgres/pooling.ts";
import { createPostgresTables, locks } from "../../engine/store/postgres/schema.ts";
import { connect, type PostgresOptions } from "../../engine/store/postgres/connect.ts";
import { movedNode } from "../../engine/store/postgres/membership.ts";

/** If tables of the source stay locked for longer than this, in milliseconds, the source is in use. */
const lockTimeout = 5_000;

/**
 * Opens a PostgreSQL database for `move`, and creates its tables if there are none. Throws `StorageRefused`
 * if a server uses it. The tables of a source are locked against changes until `close`.
 */
export async function openPostgresForMove(
  url: string,
  {
    name,
    isTarget,
    clock,
    now,
  }: { name: string; isTarget: boolean; now?: () => Millis } & Pick<PostgresOptions, "clock">,
): Promise<MoveEndpoint> {
  await assertOwnConnections(
    { url },
    { name: "move", advice: "give migrate-store the URL of the database itself", kind: "migration" },
  );
  await createPostgresTables({ url, clock }, { isMoveTarget: isTarget });
  const client = await connect({ url }, { kind: "migration" });
  try {
    await assertNoOtherUsers(client, name);
    const side = createPostgresEndpoint(client, { name, now });
    if (!isTarget) await client.query(deleteForgottenLog);
    if (!isTarget) await lockAllTables(client, { name, tables: await side.tables() });
    return side;
  } catch (error) {
    await client.end();
    throw error;
  }
}

/**
 * Deletes log entries that are no longer shown, and whose rows only wait until their partition is dropped.
 */
const deleteForgottenLog = `
  delete from log using log_cuts as gone where log.account = gone.account and log.id <= gone.up_to;
  delete from log_cuts`;

/** Throws if another move or a server uses the database. The lock ends with the connection. */
async function assertNoOtherUsers(client: Client, name: string): Promise<void> {
  const { rows } = await client.query<{ free: boolean; others: number }>(
    `select pg_try_advisory_lock($1) as free,
      (select count(*) from pg_stat_activity where datname = current_database()
        and application_name like 'waypost %' and pid <> pg_backend_pid())::int as others`,
    [locks.move],
  );
  if (rows[0]?.free !== true)
    throw new StorageRefused(
      `${name}: another "waypost migrate-store" is using it; wait until that has ended`,
    );
  if (rows[0].others > 0)
    throw new StorageRefused(
      `${name}: a waypost server is using it; stop all servers of this database first`,
    );
}

/** Locks all tables against changes and reads them as of one moment. */
async function lockAllTables(
  client: Client,
  { name, tables }: { name: string; tables: readonly TableLayout[] },
): Promise<void> {
  try {
    await client.query(`begin isolation level repeatable read; set local lock_timeout = ${lockTimeout}`);
    await client.query(`lock table ${tables.map((table) => table.name).join(", ")} in share mode`);
  } catch (error) {
    if (readSqlState(error) !== "55P03") throw error;
    throw new StorageRefused(
      `${name}: another process is writing to it; stop all servers of this database first`,
    );
  }
}

/** Lists all tables of the server's schema. A partitioned table counts as one. */
const listTables = `
  select c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
    coalesce(array_position(i.indkey::int2[], a.attnum), -1)
  from pg_class c
  join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
  left join pg_index i on i.indrelid = c.oid and i.indisprimary
  where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
    and c.relname not in (${unmovedTables.map((name) => `'${name}'`).join(", ")})
  order by c.relname, a.attnum`;

function createPostgresEndpoint(
  client: Client,
  { name, now }: { name: string; now: (() => Millis) | undefined },
): MoveEndpoint {
  const query = async (sql: string, values: readonly Cell[]): Promise<Cell[][]> => {
    let count = 0;
    const text = sql.replace(/\?/g, () => `$${++count}`);
    const { rows } = await client.query<Cell[]>({
      text,
      values: values.map(toParameter),
      rowMode: "array",
      types: bigintParsers,
    });
    return rows;
  };
  return {
    name,
    query,
    tables: async () => {
      const tables = new Map<
        string,
        { name: string; columns: { name: string; type: string }[]; keyColumns: [number, string][] }
      >();
      for (const [table, column, type, keyPosition] of await query(listTables, [])) {
        const layout = tables.get(String(table)) ?? { name: String(table), columns: [], keyColumns: [] };
        tables.set(layout.name, layout);
        if (!isChecksum(String(column))) layout.columns.push({ name: String(column), type: String(type) });
        if (Number(keyPosition) >= 0) layout.keyColumns.push([Number(keyPosition), String(column)]);
      }
      return [...tables.values()].map(({ name: table, columns, keyColumns }) => {
        const key = keyColumns.sort(([a], [b]) => a - b).map(([, column]) => column);
        return { name: table, columns, key };
      });
    },
    insert: async ({ name: table, columns }, rows) => {
      if (table === "log") await createPartitionsFor(client, listIds(columns, rows));
      const columnTypes = new Map(
        (await query(listTables, []))
          .filter(([one]) => one === table)
          .map(([, column, type]) => [column, String(type)]),
      );
      const arrays = columns.map((column, index) => `$${index + 1}::${columnTypes.get(column.name)}[]`);
      const names = columns.map((column) => column.name).join(", ");
      const text = `insert into ${table} (${names}) select * from unnest(${arrays.join(", ")})`;
      await client.query(
        text,
        columns.map((_, index) => rows.map((row) => toParameter(row[index] ?? null))),
      );
    },
    commit: async () => void (await client.query("commit")),
    time: {
      read: async () => now?.() ?? Number((await query(readClock, []))[0]?.[0]),
      // Ids of that millisecond exist already.
      continueAfter: async (usedAt) =>
        void (await query(storeUsedTime, [movedNode, usedAt, usedAt + 1, usedAt + 1])),
    },
    // The planner has no statistics of tables that were just filled.
    finish: async () => void (await client.query("analyze")),
    close: () => client.end(),
  };
}

const readClock = "select (extract(epoch from clock_timestamp()) * 1000)::bigint";

/** The latest time that a node used. All nodes continue after it: see docs/decisions/0050. */
const storeUsedTime = `insert into nodes (id, started_at, used_at, clock_offset_at) values (?, ?, ?, ?)
  on conflict (id) do update set used_at = excluded.used_at`;

/**
 * Returns the ids of rows. The partitions for these ids may be missing, because the clock of the other
 * machine was ahead, or because the tables were created days ago.
 */
function listIds(columns: TableLayout["columns"], rows: readonly Cell[][]): string[] {
  const idColumn = columns.findIndex(({ name }) => name === "id");
  return rows.map((row) => String(row[idColumn]));
}

const toParameter = (cell: Cell): string | number | Uint8Array | null =>
  typeof cell === "bigint" ? String(cell) : cell;

const int8 = 20;
const int2 = 21;
const int4 = 23;

/** Parses whole numbers without loss, and everything else like the driver. */
const bigintParsers: CustomTypesConfig = {
  getTypeParser: ((oid: number, format: "text"): unknown =>
    [int8, int2, int4].includes(oid)
      ? BigInt
      : types.getTypeParser(oid, format)) as CustomTypesConfig["getTypeParser"],
};
