import type { AccountId, Millis } from "../values/basics.ts";

/** How the caller of a request proved its identity. `server`: the server itself, when it repairs its data. */
export type ActorKind = "token" | "password" | "operator" | "commandLine" | "server";

/** Every way in which a caller can prove its identity. */
export const actorKinds = [
  "token",
  "password",
  "operator",
  "commandLine",
  "server",
] as const satisfies ActorKind[];

/** The caller of a request. It never contains a secret. */
export type Actor = {
  kind: ActorKind;
  /** The token of the account that was used: `main`, or the id of another token. */
  token?: string;
  /** The user name that the caller gave. */
  name?: string;
  /** The address of the caller; null if it is not known. */
  address: string | null;
};

/** An action: a word such as `queue.delete`, and its object. */
export type AuditNote = {
  what: string;
  /** The name or id of the object, or of the first of several objects. Null means the account itself. */
  object: string | null;
  /** The number of objects, if a request can affect several. */
  count?: number;
  /** The names of the changed fields. */
  fields?: readonly string[];
};

/**
 * A record of a change to the settings of an account, or to many things at once, and of who made the change.
 * It is written in the transaction of the change. `id` sorts by time.
 */
export type AuditEntry = AuditNote & { account: AccountId; id: string; time: Millis; by: Actor };

/** Selects entries of the audit log. `from` and `to` are inclusive. */
export type AuditFilter = {
  what?: readonly string[];
  object?: string;
  by?: readonly ActorKind[];
  from?: Millis;
  to?: Millis;
};

/**
 * Reports whether an entry matches the filter. A word without a dot also matches all words that begin with
 * it: `queue` matches `queue.delete`.
 */
export function matchesAuditFilter(
  { what, object, by, from = 0, to = Infinity }: AuditFilter,
  entry: AuditEntry,
): boolean {
  if (entry.time < from || entry.time > to) return false;
  if (object !== undefined && entry.object !== object) return false;
  if (by !== undefined && !by.includes(entry.by.kind)) return false;
  return what === undefined || what.some((word) => entry.what === word || entry.what.startsWith(`${word}.`));
}
