import type { DatabaseConnection } from "../sql/database.ts";
import type { OnDamage } from "./fileCheck.ts";
import { createGroupCommitStore } from "../batch/groupCommit.ts";
import type { KeySource } from "../sql/keyRing.ts";
import { openChecked } from "./openChecked.ts";
import { createQueries } from "../queries/index.ts";
import { runSqlBatch } from "../sql/transaction.ts";
import { openSqlite } from "./database.ts";
import { readNextDueAt, createSqlReads } from "../sql/reads.ts";
import type { MomentSource, Store } from "../store.ts";
import { createSequencer } from "../sequencer.ts";

/** SQLite on the caller's own thread, in a file or in `:memory:`: for tests and tools. A server uses `embeddedStore`. */
export async function sqliteStore(path: string, momentSource: MomentSource, keys: KeySource = null, onDamage?: OnDamage): Promise<Store> {
  const writer = await openChecked(path, { keys, ...(onDamage && { onDamage }) });
  const reader = path === ":memory:" ? writer : openSqlite(path, { readOnly: true, keys, ...(onDamage && { onDamage }) });
  // On one connection a read must not see a transaction that is running.
  const inSequence = createSequencer();
  const storageReads = createSqlReads({ ...reader.connection, ...inOrder(reader.connection, inSequence) });
  return createGroupCommitStore({
    runBatch: (calls, capacity) => inSequence(() => runSqlBatch(writer, momentSource, calls, capacity)),
    read: createQueries(storageReads),
    nextDueAt: () => inSequence(() => readNextDueAt(reader.connection)),
    probe: () => inSequence(() => writer.probe()),
    close: async () => {
      if (reader !== writer) reader.close();
      writer.close();
    },
  });
}

const inOrder = (
  connection: DatabaseConnection,
  inSequence: <T>(run: () => Promise<T>) => Promise<T>,
): Pick<DatabaseConnection, "query" | "each"> => ({
  query: (sql, values) => inSequence(() => connection.query(sql, values)),
  each: (sql, types, rows) => inSequence(() => connection.each(sql, types, rows)),
});
