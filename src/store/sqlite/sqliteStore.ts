import type { Connection } from "../sql/database.ts";
import type { OnDamage } from "./fileCheck.ts";
import { groupCommit } from "../batch/groupCommit.ts";
import type { KeySource } from "../sql/keyRing.ts";
import { openChecked } from "./openChecked.ts";
import { queriesOf } from "../queries/index.ts";
import { runSqlBatch } from "../sql/transaction.ts";
import { openSqlite } from "./database.ts";
import { nextDueAt, sqlShelf } from "../sql/reads.ts";
import type { Source, Store } from "../store.ts";
import { turns } from "../turns.ts";

/** SQLite on the caller's own thread, in a file or in `:memory:`: for tests and tools. A server uses `embeddedStore`. */
export async function sqliteStore(path: string, source: Source, keys: KeySource = null, onDamage?: OnDamage): Promise<Store> {
  const writer = await openChecked(path, { keys, ...(onDamage && { onDamage }) });
  const reader = path === ":memory:" ? writer : openSqlite(path, { readOnly: true, keys, ...(onDamage && { onDamage }) });
  // On one connection a read must not see a transaction that is running.
  const inTurn = turns();
  const shelf = sqlShelf({ ...reader.connection, ...turnsOf(reader.connection, inTurn) });
  return groupCommit({
    runBatch: (calls, hands) => inTurn(() => runSqlBatch(writer, source, calls, hands)),
    read: queriesOf(shelf),
    nextDueAt: () => inTurn(() => nextDueAt(reader.connection)),
    tryToStore: () => inTurn(() => writer.tryToStore()),
    close: async () => {
      if (reader !== writer) reader.close();
      writer.close();
    },
  });
}

const turnsOf = (connection: Connection, inTurn: <T>(run: () => Promise<T>) => Promise<T>): Pick<Connection, "query" | "each"> => ({
  query: (sql, values) => inTurn(() => connection.query(sql, values)),
  each: (sql, types, rows) => inTurn(() => connection.each(sql, types, rows)),
});
