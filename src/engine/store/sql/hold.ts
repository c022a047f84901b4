import type { DatabaseConnection } from "./database.ts";

/** The id of the row of `server_settings` that exists while all deliveries are held. */
const settingId = "hold";

/**
 * The row of the table of schemas by which version 0.1.0 holds deliveries. It is read and written as well, so
 * that a store that this version held stays held, and nodes of both versions hold together.
 */
const olderMark = "held";

/**
 * How a move finds this row in its source, and makes its target the same. The row of `server_settings` moves
 * with its table.
 */
export const olderHold = {
  find: `select hash from store_schema where hash = '${olderMark}'`,
  add: `insert into store_schema (hash) values ('${olderMark}') on conflict (hash) do nothing`,
  remove: `delete from store_schema where hash = '${olderMark}'`,
};

/** Reports whether all deliveries are held. */
export const readHold = async (connection: DatabaseConnection): Promise<boolean> =>
  (
    await connection.query(
      "select id from server_settings where id = ? union all select hash from store_schema where hash = ?",
      [settingId, olderMark],
    )
  ).length > 0;

/** Holds all deliveries, or ends the hold. */
export async function writeHold(connection: DatabaseConnection, isOnHold: boolean): Promise<void> {
  if (isOnHold) {
    const insert = "insert into server_settings (id, detail) values (?, '{}') on conflict (id) do nothing";
    await connection.query(insert, [settingId]);
    await connection.query(olderHold.add, []);
    return;
  }
  await connection.query("delete from server_settings where id = ?", [settingId]);
  await connection.query(olderHold.remove, []);
}
