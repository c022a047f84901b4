import type { Client } from "pg";
import type { Kind, Place } from "./session.ts";
import { codeOf, connect, plainly } from "./session.ts";
import { StorageRefused } from "../store.ts";

/** What is written on a connection, and must not be read on another one: a setting of ours, which means nothing to the database. */
const label = "waypost.owner";
/** A pooler that many use lends other connections each time, so it may seem well: of 400 starts under load three looks missed it once. */
const looks = 10;

type Asking = {
  /** No other process calls itself so. */
  name: string;
  /** What to do where connections are lent. */
  advice?: string;
  kind?: Extract<Kind, "look" | "migration">;
};

const usual = { advice: "start with --database-pooling transaction", kind: "look" } as const;

/**
 * Sees to it that connections are ours for as long as they are open, where nothing else was said. Behind a pooler that lends them for a transaction
 * at a time some of what is relied on is not even refused: a node would listen and hear nothing, and others would get its settings. Throws
 * `StorageRefused`.
 */
export async function requireOwnConnections(place: Place, asking: Asking): Promise<void> {
  const { name, advice, kind } = { ...usual, ...asking };
  if (place.pooling === "transaction") return;
  const one = await connect(place, { kind });
  try {
    const other = await connect(place, { kind });
    try {
      for (let look = 1; look <= looks; look++)
        if (await isLent(one, other, `${name} ${look}`)) throw new StorageRefused(`${lent}; ${advice}`);
    } finally {
      await other.end();
    }
  } catch (error) {
    // A database that has no such settings: then there is no telling.
    if (codeOf(error) === undefined) throw error;
  } finally {
    await one.end();
  }
}

const lent = "on the way to PostgreSQL is a pooler that lends connections for one transaction at a time";

/** What is written on one connection is read on the other, or is not there any more while the other one is in use. */
async function isLent(one: Client, other: Client, text: string): Promise<boolean> {
  const [written] = await plainly(one, `set ${label} = '${text}'; ${read}`);
  if (written?.text !== text) return false;
  const [onOther] = await plainly(other, `begin; ${read}`);
  if (onOther?.text === text) return true;
  const [onOne] = await plainly(one, read);
  await plainly(other, "commit");
  return onOne?.text !== text;
}

const read = `select current_setting('${label}', true) as text`;
