import { existsSync } from "node:fs";
import type { ServerConfig } from "../../settings/config.ts";
import { toStorePath } from "../../settings/dataFolder.ts";
import { findKeySource } from "../../settings/encryptionKeys.ts";
import { createIdGenerator } from "../../engine/core/values/ids.ts";
import { systemClock, systemRandom } from "../../engine/clock/clock.ts";
import type { DatabaseConnection } from "../../engine/store/sql/database.ts";
import type { KeySource } from "../../engine/store/layout/keyRing.ts";
import { createSqlReads } from "../../engine/store/sql/reads.ts";
import { openSqlite } from "../../engine/store/sqlite/database.ts";
import type { StorageReads } from "../../engine/store/layout/storageReads.ts";

/** A store that is only read. `database` is its kind. `damage`: the damaged rows that were read. */
export type StoreView = {
  database: "sqlite" | "postgres";
  connection: DatabaseConnection;
  reads: StorageReads;
  keys: KeySource;
  damage: string[];
  close(): Promise<void>;
};

/** Opens a store for reading. Its server may be running. */
export async function openForChecks(settings: ServerConfig): Promise<StoreView> {
  const { databaseUrl, databasePooling, data } = settings;
  const source = findKeySource(settings);
  const keys = source && "file" in source && !existsSync(source.file) ? null : source;
  const damage: string[] = [];
  if (databaseUrl === "") {
    const onDamage = ({ text }: { text: string }): void => void damage.push(text);
    const { connection, close } = openSqlite(toStorePath(data), { readOnly: true, keys, onDamage });
    const reads = createSqlReads(connection);
    return { database: "sqlite", connection, reads, keys: source, damage, close: async () => close() };
  }
  const { openPostgresReads } = await import("../../engine/store/postgres/database.ts");
  const { connection, storageReads, close } = await openPostgresReads(
    { url: databaseUrl, pooling: databasePooling, keys },
    { name: createIdGenerator(systemRandom)("nod", systemClock.now()) },
  );
  return { database: "postgres", connection, reads: storageReads, keys: source, damage, close };
}
