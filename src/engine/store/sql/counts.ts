import type { Usage } from "../../core/model/counts.ts";
import { countNames } from "../../core/model/counts.ts";
import type { NodeId } from "../../core/values/basics.ts";
import type { StoreCountName } from "../../core/explain/storeCounts.ts";
import { holders } from "../../core/model/messageState.ts";
import { fillStoreCounts } from "../../core/explain/storeCounts.ts";
import type { StorageReads } from "../layout/storageReads.ts";
import type { DatabaseConnection, Dialect } from "./database.ts";
import { toCountColumn } from "../layout/columns.ts";
import { tables } from "../catalog/tables.ts";

const { usage } = tables;

const statements = new WeakMap<Dialect, string>();

/** Returns a statement that adds to existing rows and inserts missing rows. */
function makeStatement(dialect: Dialect): string {
  const known = statements.get(dialect);
  if (known !== undefined) return known;
  const { values } = dialect.givenRows(Object.values(usage.columns));
  const sums = countNames
    .map(toCountColumn)
    .map((column) => `${column} = usage.${column} + excluded.${column}`);
  const statement = `insert into usage (${Object.keys(usage.columns).join(", ")}) ${values}
    on conflict (account, id) do update set ${sums.join(", ")}`;
  statements.set(dialect, statement);
  return statement;
}

/** Adds the usage of a batch in one statement. No row is read first, and no other node writes these rows. */
export async function addUsage(connection: DatabaseConnection, rows: readonly Usage[]): Promise<void> {
  if (rows.length === 0) return;
  const values = rows.map((row) => [row.account, row.id, ...countNames.map((name) => row[name])]);
  await connection.each(makeStatement(connection.dialect), Object.values(usage.columns), values);
}

/** The node to whose rows a store with one writer adds its counts, and into which others are merged. */
const noNode = "";

/**
 * Adds to the counts of all accounts. Each node has its own rows, so that nodes do not wait for each other.
 */
export async function addStoreCounts(
  connection: DatabaseConnection,
  sums: ReadonlyMap<StoreCountName, number>,
  node: NodeId = noNode,
): Promise<void> {
  if (sums.size === 0) return;
  const { values } = connection.dialect.givenRows(["text", "text", "bigint"]);
  const sql = `insert into store_counts (node, name, value) ${values}
    on conflict (node, name) do update set value = store_counts.value + excluded.value`;
  const rows = [...sums].map(([name, sum]) => [node, name, sum]);
  await connection.each(sql, ["text", "text", "bigint"], rows);
}

/**
 * Merges the counts of all nodes into one set of rows, so that ended nodes leave none behind. A node that is
 * still running begins new rows.
 */
export async function mergeStoreCounts(connection: DatabaseConnection): Promise<void> {
  await connection.query(
    `with merged as (delete from store_counts where node <> '' returning name, value)
      insert into store_counts (node, name, value)
        select '', name, sum(value) from merged group by name order by name
      on conflict (node, name) do update set value = store_counts.value + excluded.value`,
    [],
  );
}

/** Returns the read of the figures of all accounts. */
export function createFigureReads(connection: DatabaseConnection): Pick<StorageReads, "storeFigures"> {
  const { dialect } = connection;
  const ofHolders = `leased_by in ('${holders.join("', '")}')`;
  const leased = `select case when ${ofHolders} then 'acknowledging' else 'leased' end as name
    from messages ${dialect.useIndex("messages_leased")}
    where leased_by is not null limit ?`;
  const figuresSql = `select name, count(*) as value from (${leased}) as leases group by name
    union all select 'oldestDueAt', (select min(due_at) from messages
      where leased_by is null and due_at is not null and id <> '')
    union all select name, value from store_counts`;
  return {
    storeFigures: async (maxLeased) => {
      const sums = new Map<string, number>();
      let oldestDueAt: number | null = null;
      for (const { name, value } of await connection.query(figuresSql, [maxLeased]))
        if (name === "oldestDueAt") oldestDueAt = value === null ? null : Number(value);
        else sums.set(String(name), (sums.get(String(name)) ?? 0) + Number(value));
      return {
        counts: fillStoreCounts(Object.fromEntries(sums)),
        leased: sums.get("leased") ?? 0,
        acknowledging: sums.get("acknowledging") ?? 0,
        oldestDueAt,
      };
    },
  };
}
