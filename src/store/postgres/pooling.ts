import type { Client } from "pg";
import type { ConnectionKind, DatabaseLocation } from "./session.ts";
import { readSqlState, connect, runPlain } from "./session.ts";
import { StorageRefused } from "../store.ts";

/** What is written on a connection, and must not be read on another one: a setting of ours, which means nothing to the database. */
const ownerSetting = "waypost.owner";
/** A pooler that many use lends other connections each time, so it may seem well: of 400 starts under load three looks missed it once. */
const checks = 10;

type PoolingCheck = {
  /** No other process calls itself so. */
  name: string;
  /** What to do where connections are lent. */
  advice?: string;
  kind?: Extract<ConnectionKind, "look" | "migration">;
};

const defaultCheck = { advice: "start with --database-pooling transaction", kind: "look" } as const;

/**
 * Sees to it that connections are ours for as long as they are open, where nothing else was said. Behind a pooler that lends them for a transaction
 * at a time some of what is relied on is not even refused: a node would listen and hear nothing, and others would get its settings. Throws
 * `StorageRefused`.
 */
export async function requireOwnConnections(location: DatabaseLocation, check: PoolingCheck): Promise<void> {
  const { name, advice, kind } = { ...defaultCheck, ...check };
  if (location.pooling === "transaction") return;
  const first = await connect(location, { kind });
  try {
    const second = await connect(location, { kind });
    try {
      for (let round = 1; round <= checks; round++)
        if (await isConnectionLent(first, second, `${name} ${round}`)) throw new StorageRefused(`${lentMessage}; ${advice}`);
    } finally {
      await second.end();
    }
  } catch (error) {
    // A database that has no such settings: then there is no telling.
    if (readSqlState(error) === undefined) throw error;
  } finally {
    await first.end();
  }
}

const lentMessage = "on the way to PostgreSQL is a pooler that lends connections for one transaction at a time";

/** What is written on one connection is read on the other, or is not there any more while the other one is in use. */
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
