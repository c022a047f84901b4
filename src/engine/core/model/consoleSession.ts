import { hour } from "../values/time.ts";
import type { Millis } from "../values/basics.ts";

/**
 * The credential that opened a session: the account's password, its main token, its read-only token, or the
 * operator's password; or else the id of another token of the account.
 */
export type SessionCredential =
  | { kind: "password" | "main" | "readOnly" | "operator" }
  | { kind: "token"; id: string };

/** A session of the web console, which belongs to an account. Only the hash of its secret is kept. */
export type ConsoleSession = {
  hash: string;
  /** The name that the person gave, or a proxy that signs people in. Empty if there is none. */
  name: string;
  credential: SessionCredential;
  openedAt: Millis;
  expiresAt: Millis;
};

/** How long a session lasts. It is not extended by use. */
export const sessionSpan: Millis = 12 * hour;

/** The maximum number of sessions of one account. A further session ends the oldest of its credential. */
export const maxSessions = 50;

/** Returns the session with this hash if it has not expired, otherwise null. */
export const findSession = (
  sessions: readonly ConsoleSession[] | undefined,
  hash: string,
  now: Millis,
): ConsoleSession | null =>
  sessions?.find((session) => session.hash === hash && session.expiresAt > now) ?? null;
