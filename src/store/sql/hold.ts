import type { DatabaseConnection } from "./database.ts";

/**
 * The row of the table of schemas that exists while all deliveries are held. No program has a schema with
 * this hash.
 */
const held = "held";

/** Reports whether all deliveries are held. */
export const readHold = async (connection: DatabaseConnection): Promise<boolean> =>
  (await connection.query("select hash from store_schema where hash = ?", [held])).length > 0;

/** Holds all deliveries, or ends the hold. */
export async function writeHold(connection: DatabaseConnection, isHeld: boolean): Promise<void> {
  const sql = isHeld
    ? "insert into store_schema (hash) values (?) on conflict (hash) do nothing"
    : "delete from store_schema where hash = ?";
  await connection.query(sql, [held]);
}
