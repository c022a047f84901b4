import { createHmac, hash, randomBytes, timingSafeEqual } from "node:crypto";
import type { Account } from "../../engine/core/model/account.ts";
import { makeToken } from "../../engine/core/values/tokenText.ts";

/** Returns a new token of an account, in the same form, with 192 random bits. */
export const makeRandomToken = (id: string): string => makeToken(id, randomBytes(24).toString("base64url"));

/** Returns the key by which a token is looked up: its SHA-256 in hex. */
export const hashToken = (token: string): string => hash("sha256", token, "hex");

/**
 * Returns the read-only token of an account. It is derived from the main token, but the main token cannot be
 * derived from it. Every account therefore has a read-only token, which becomes invalid when the main token
 * is replaced.
 */
export const makeReadOnlyToken = ({ id, token }: Pick<Account, "id" | "token">): string =>
  makeToken(id, createHmac("sha256", token).update("read-only").digest("base64url"));

/** Returns the account id in a token, or null. The id proves nothing. */
export function parseAccountId(token: string): string | null {
  const id = fieldIn(token, "UserID");
  return id !== null && /^[\w.-]{1,200}$/.test(id) ? id : null;
}

/** Returns the password in a token, or null. */
export const parsePassword = (token: string): string | null => fieldIn(token, "Password");

/**
 * Returns the text in one field of a token. Returns null if the field is missing or the text is not a token.
 */
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

/** Reports whether two secrets are equal. The time does not depend on the secrets. */
export const isSameSecret = (one: string, other: string): boolean =>
  timingSafeEqual(Buffer.from(hashToken(one)), Buffer.from(hashToken(other)));
