import type { Millis, NodeId } from "../../core/values/basics.ts";
import type { DatabaseConnection } from "../sql/database.ts";

/** Rows of this size are stored as they are, four on a page of 8 KiB. */
const rowBytes = 1_900;

/**
 * Writes to the database's log and to a row, and this many bytes to a new table, which it drops. Existing
 * tables have free space, so a write to one of them might need no room on the disk.
 */
export async function writeProbe(
  { query }: Pick<DatabaseConnection, "query">,
  { node, now, bytes }: { node: NodeId; now: Millis; bytes: number },
): Promise<void> {
  await query("select pg_logical_emit_message(true, 'waypost', 'probe')", []);
  await query("update storage_probe set probed_at = ?", [now]);
  if (bytes === 0) return;
  const table = `"probe_${node.replaceAll('"', "")}"`;
  const rows = Math.ceil(bytes / rowBytes);
  await query(`create table ${table} (content text)`, []);
  await query(`insert into ${table} select repeat('x', ${rowBytes}) from generate_series(1, ${rows})`, []);
  await query(`drop table ${table}`, []);
}
