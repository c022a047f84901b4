import { createHmac, hash, randomBytes, timingSafeEqual } from "node:crypto";
import type { Account } from "../../core/model/message.ts";

/** Existing clients take the user id out of a token, so it must be this: base64 of a JSON with `UserID`. */
export const makeToken = (id: string, password: string): string =>
  Buffer.from(JSON.stringify({ UserID: id, Password: password })).toString("base64");

/** A new token of an account, in the same form: 192 bits that nobody can guess. */
export const makeRandomToken = (id: string): string => makeToken(id, randomBytes(24).toString("base64url"));

/** What a token is looked up by: SHA-256 in hex. */
export const hashToken = (token: string): string => hash("sha256", token, "hex");

/**
 * The token of an account that can read and change nothing. It is made of the other one, which cannot be told from it:
 * so every account has one, and it ends together with the other.
 */
export const makeReadOnlyToken = ({ id, token }: Pick<Account, "id" | "token">): string =>
  makeToken(id, createHmac("sha256", token).update("read-only").digest("base64url"));

/** The account that a token names, if it names one. Nothing is proved by it. */
export function parseAccountId(token: string): string | null {
  const id = fieldIn(token, "UserID");
  return id !== null && /^[\w.-]{1,200}$/.test(id) ? id : null;
}

/** The password in a token, if there is one. */
export const parsePassword = (token: string): string | null => fieldIn(token, "Password");

/** Returns a text that a token has under a name; null if it has none, or is no token. */
function fieldIn(token: string, name: string): string | null {
  if (token.length > longestToken) return null;
  try {
    const value: unknown = JSON.parse(Buffer.from(token, "base64").toString());
    const field: unknown = typeof value === "object" && value !== null ? Reflect.get(value, name) : null;
    return typeof field === "string" ? field : null;
  } catch {
    return null;
  }
}

const longestToken = 2_000;

/** Compares two secrets in a time that tells nothing of them. */
export const isSameSecret = (one: string, other: string): boolean =>
  timingSafeEqual(Buffer.from(hashToken(one)), Buffer.from(hashToken(other)));
