import type { DatabaseConnection } from "../sql/database.ts";
import type { OnDamage } from "./fileCheck.ts";
import { createGroupCommitStore } from "../batch/groupCommit.ts";
import type { KeySource } from "../layout/keyRing.ts";
import { openChecked } from "./openChecked.ts";
import { createQueries } from "../catalog/queries.ts";
import { readHold, writeHold } from "../sql/hold.ts";
import { runSqlBatch } from "../sql/transaction.ts";
import { openSqlite } from "./database.ts";
import { readNextDueAt, createSqlReads } from "../sql/reads.ts";
import type { MomentSource, Store } from "../store.ts";
import { createSequencer } from "../batch/sequencer.ts";

/**
 * Returns a store in an SQLite file or in `:memory:`, on the caller's own thread. It is for tests and tools;
 * a server uses `embeddedStore`.
 */
export async function sqliteStore(
  path: string,
  momentSource: MomentSource,
  options: { keys?: KeySource; onDamage?: OnDamage } = {},
): Promise<Store> {
  const writer = await openChecked(path, options);
  const reader = path === ":memory:" ? writer : openSqlite(path, { readOnly: true, ...options });
  // On a shared connection, a read must not see a running transaction.
  const inSequence = createSequencer();
  const storageReads = createSqlReads({ ...reader.connection, ...inOrder(reader.connection, inSequence) });
  return createGroupCommitStore({
    runBatch: (calls, capacity) =>
      inSequence(() => runSqlBatch({ database: writer, momentSource }, calls, capacity)),
    read: createQueries(storageReads),
    nextDueAt: () => inSequence(() => readNextDueAt(reader.connection)),
    probe: (bytes) => inSequence(() => writer.probe(bytes)),
    hold: {
      isOnHold: () => inSequence(() => readHold(reader.connection)),
      set: (isOnHold) =>
        inSequence(() => writer.transaction((connection) => writeHold(connection, isOnHold))),
    },
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
