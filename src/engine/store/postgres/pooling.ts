import type { Client } from "pg";
import type { ConnectionKind, DatabaseLocation } from "./connect.ts";
import { readSqlState } from "./databaseErrors.ts";
import { connect } from "./connect.ts";
import { runPlain } from "./connection.ts";
import { StorageRefused } from "../layout/storageErrors.ts";

/**
 * A setting that is written on one connection. If another connection can read it, the two share a database
 * connection. The database itself does not use this setting.
 */
const ownerSetting = "waypost.owner";
/**
 * The number of checks. Behind a busy pooler, a check can fail to notice that connections are lent. In 400
 * starts under load, three checks per start failed to notice it once.
 */
const checks = 10;

type PoolingCheck = {
  /** A name that no other process uses. */
  name: string;
  /** What to do if connections are lent. */
  advice?: string;
  kind?: Extract<ConnectionKind, "look" | "migration">;
};

const defaultCheck = { advice: "start with --database-pooling transaction", kind: "look" } as const;

/**
 * Checks that connections belong to this process for as long as they are open. Checks nothing if `pooling` is
 * "transaction". Behind a pooler that lends connections for one transaction at a time, some features fail
 * without an error. A node would listen and receive nothing, and other processes would get its settings.
 * Throws `StorageRefused`.
 */
export async function assertOwnConnections(location: DatabaseLocation, check: PoolingCheck): Promise<void> {
  const { name, advice, kind } = { ...defaultCheck, ...check };
  if (location.pooling === "transaction") return;
  const first = await connect(location, { kind });
  try {
    const second = await connect(location, { kind });
    try {
      for (let round = 1; round <= checks; round++)
        if (await isConnectionLent(first, second, `${name} ${round}`))
          throw new StorageRefused(`${lentMessage}; ${advice}`);
    } finally {
      await second.end();
    }
  } catch (error) {
    // This database has no such settings, so lending cannot be detected.
    if (readSqlState(error) === undefined) throw error;
  } finally {
    await first.end();
  }
}

const lentMessage = "a pooler in front of PostgreSQL is in transaction mode";

/**
 * Reports whether two connections are lent: a setting of the first is visible on the second, or it disappears
 * from the first while the second is in use.
 */
async function isConnectionLent(one: Client, other: Client, text: string): Promise<boolean> {
  const [onFirst] = await runPlain(one, `set ${ownerSetting} = '${text}'; ${readOwnerSql}`);
  if (onFirst?.text !== text) return false;
  const [onOther] = await runPlain(other, `begin; ${readOwnerSql}`);
  if (onOther?.text === text) return true;
  const [onOne] = await runPlain(one, readOwnerSql);
  await runPlain(other, "commit");
  return onOne?.text !== text;
}

const readOwnerSql = `select current_setting('${ownerSetting}', true) as text`;
