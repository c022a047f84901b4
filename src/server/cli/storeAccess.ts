import { existsSync } from "node:fs";
import type { Logger } from "pino";
import { CannotStart } from "./cannotStart.ts";
import { systemClock, systemRandom } from "../../engine/clock/clock.ts";
import { createIdGenerator } from "../../engine/core/values/ids.ts";
import type { KeySource } from "../../engine/store/layout/keyRing.ts";
import { createSqlReads } from "../../engine/store/sql/reads.ts";
import { openSqlite } from "../../engine/store/sqlite/database.ts";
import { clientUrl } from "../../settings/addresses.ts";
import type { ServerConfig } from "../../settings/config.ts";
import { FolderTaken, hasStore, toStorePath } from "../../settings/dataFolder.ts";
import { pickEgressSettings } from "../../settings/egressSettings.ts";
import { findKeySource } from "../../settings/encryptionKeys.ts";
import { commandLine, connectToServerAdmin, createServerAdmin, type ServerAdmin } from "../accountAdmin.ts";
import { openStore } from "../openStore.ts";

const generateId = createIdGenerator(systemRandom);

/** Returns random text for a signing key or a password. */
export const makeSecret = (): string => generateId("sig", systemClock.now());

/** Calls `run` with the administration of the running server, or of the store if no server runs. */
export async function withServerAdmin<T>(
  settings: ServerConfig,
  { log, run }: { log: Logger; run: (admin: ServerAdmin) => Promise<T> },
): Promise<T> {
  const { data, databaseUrl } = settings;
  if (databaseUrl === "" && !hasStore(data))
    throw new CannotStart(`${data}: no store found; "waypost start --data ${data}" creates one`);
  const node = createIdGenerator(systemRandom)("nod", systemClock.now());
  const opened = await openStore(settings, { node, log, reclaims: false }).catch((error: unknown) => {
    if (error instanceof FolderTaken) return null;
    throw error;
  });
  if (!opened) return run(connectToServerAdmin(data));
  const options = {
    logRetention: settings.logRetention,
    url: () => clientUrl(settings),
    egress: pickEgressSettings(settings),
  };
  try {
    return await run(
      createServerAdmin(opened.store, {
        ...options,
        keys: opened.keys,
        actor: commandLine,
        newSecret: makeSecret,
      }),
    );
  } finally {
    await opened.close();
  }
}

/** Reads the accounts of a store without its server. Also works while the server runs. */
export async function readAccounts(settings: ServerConfig) {
  const { data, databaseUrl, databasePooling } = settings;
  const keys = findKeySource(settings);
  if (databaseUrl !== "") {
    const { openPostgresReads } = await import("../../engine/store/postgres/database.ts");
    const location = { url: databaseUrl, pooling: databasePooling, keys };
    const { storageReads, close } = await openPostgresReads(location, {
      name: createIdGenerator(systemRandom)("nod", systemClock.now()),
    });
    const accounts = await storageReads.accounts();
    await close();
    return accounts;
  }
  if (!hasStore(data))
    throw new CannotStart(`${data}: no store found; "waypost start --data ${data}" creates one`);
  const database = openSqlite(toStorePath(data), { readOnly: true, keys: withExistingKeys(keys) });
  return createSqlReads(database.connection)
    .accounts()
    .finally(() => database.close());
}

/**
 * Returns null if the keys file is missing, for example because the store was moved here from a database. A
 * command that only reads must not create keys.
 */
const withExistingKeys = (keys: KeySource): KeySource =>
  keys && "file" in keys && !existsSync(keys.file) ? null : keys;
