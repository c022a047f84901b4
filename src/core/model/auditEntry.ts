import type { AccountId, Millis } from "./message.ts";

/** How whoever asked for something proved who he is. */
export type ActorKind = "token" | "password" | "operator" | "commandLine";

export const actorKinds = ["token", "password", "operator", "commandLine"] as const satisfies ActorKind[];

/** Who asked for something. Never a secret. */
export type Actor = {
  kind: ActorKind;
  /** Which of the tokens of the account: `main`, or the id of one of the others. */
  token?: string;
  /** The user name that was given. */
  name?: string;
  /** The address of the caller, as far as it is known. */
  address: string | null;
};

/** What was done: a word such as `queue.delete`, and to what. */
export type AuditNote = {
  what: string;
  /** The name or id of it; of many the first one. Null: the account itself. */
  object: string | null;
  /** How many there were, where a request can mean many. */
  count?: number;
  /** What was changed of it. */
  fields?: readonly string[];
};

/** Who did what to the settings of an account, or to many things at once. Written with the change itself. `id` sorts by time. */
export type AuditEntry = AuditNote & { account: AccountId; id: string; time: Millis; by: Actor };

/** Which entries are meant. `from` and `to` are inclusive. */
export type AuditFilter = { what?: readonly string[]; object?: string; by?: readonly ActorKind[]; from?: Millis; to?: Millis };

/** Whether an entry is meant. A word without a dot means all that begin with it: `queue` means `queue.delete` as well. */
export function matchesAuditFilter({ what, object, by, from = 0, to = Infinity }: AuditFilter, entry: AuditEntry): boolean {
  if (entry.time < from || entry.time > to) return false;
  if (object !== undefined && entry.object !== object) return false;
  if (by !== undefined && !by.includes(entry.by.kind)) return false;
  return what === undefined || what.some((word) => entry.what === word || entry.what.startsWith(`${word}.`));
}
