import type { Pool } from "pg";

/** Creates the tables of the shop, which has one book. */
export async function createTables(pool: Pool): Promise<void> {
  await pool.query(`
    create table if not exists orders (
      id bigint generated always as identity primary key,
      item text not null,
      mailed_at timestamptz
    );
    create table if not exists stock (item text primary key, count integer not null check (count >= 0));
    insert into stock values ('book', 1) on conflict do nothing`);
}

/**
 * Stores an order, and publishes the call that mails the customer. Both exist, or neither does. Returns the
 * id of the order, or null if the item is not in stock.
 */
export async function placeOrder(
  pool: Pool,
  { item, mailUrl }: { item: string; mailUrl: string },
): Promise<number | null> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    const inserted = await client.query<{ id: string }>(
      "insert into orders (item) values ($1) returning id",
      [item],
    );
    const order = Number(inserted.rows[0]?.id);
    await client.query("select waypost.publish($1, $2::jsonb)", [mailUrl, JSON.stringify({ order })]);
    const taken = await client.query(
      "update stock set count = count - 1 where item = $1 and count > 0 returning count",
      [item],
    );
    // The order and its message vanish together.
    await client.query(taken.rowCount === 1 ? "commit" : "rollback");
    return taken.rowCount === 1 ? order : null;
  } catch (error) {
    await client.query("rollback").catch(() => undefined);
    throw error;
  } finally {
    client.release();
  }
}

/** Notes that the customer of an order was mailed. Returns false if that was done before. */
export async function markMailed(pool: Pool, order: number): Promise<boolean> {
  const { rowCount } = await pool.query(
    "update orders set mailed_at = now() where id = $1 and mailed_at is null",
    [order],
  );
  return rowCount === 1;
}
