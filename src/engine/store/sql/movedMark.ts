import type { DatabaseConnection } from "./database.ts";

// Marks of a store are rows of the table of schemas. No program has a schema with such a hash, and programs
// that do not know a mark ignore it.

/** Where everything in a store was moved to, and when, as an ISO time. */
export type MovedStore = { to: string; at: string };

/** The start of the mark. The time follows, so that the newest of several marks is the last one. */
const start = "moved at ";

/** Returns the mark of a store. */
export const formatMovedMark = ({ to, at }: MovedStore): string => `${start}${at} to ${to}`;

/** Returns what the newest of the marks says, or null if there is none. */
export function findMoved(hashes: Iterable<unknown>): MovedStore | null {
  const newest = [...hashes].map(String).filter(isMovedMark).sort().at(-1);
  if (newest === undefined) return null;
  const [at = "", ...to] = newest.slice(start.length).split(" to ");
  return { at, to: to.join(" to ") };
}

const isMovedMark = (hash: string): boolean => hash.startsWith(start);

/** Statements for the mark. */
export const movedMark = {
  find: `select hash from store_schema where hash like '${start}%'`,
  add: "insert into store_schema (hash) values (?) on conflict (hash) do nothing",
  removeOthers: `delete from store_schema where hash like '${start}%' and hash <> ?`,
  remove: `delete from store_schema where hash like '${start}%'`,
} as const;

/** Returns where everything in a store was moved to, or null if it was not moved. */
export const readMoved = async ({ query }: Pick<DatabaseConnection, "query">): Promise<MovedStore | null> =>
  findMoved((await query(movedMark.find, [])).map(({ hash }) => hash));

/** Returns the text for a store from which everything was moved. */
export const formatMoved = ({ to, at }: MovedStore): string =>
  `everything in this store was moved to ${to} at ${at}`;
