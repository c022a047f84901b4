import { createHmac, timingSafeEqual } from "node:crypto";
import type { LeaseRef } from "../core/model/messageState.ts";
import type { StoredMessage } from "../core/model/message.ts";

// The token of an attempt names the attempt, and proves with a MAC that its bearer received the delivery. The
// key of the MAC is a random key of the message, which no receiver learns. The signing keys of the account
// would not do: every receiver that checks signatures by the rules of Standard Webhooks has them.

/** A token that was read, but not yet verified. */
export type AttemptToken = LeaseRef & { mac: string };

/** Returns the token of an attempt: its MAC, its number, the message and the account. */
export const makeAttemptToken = (
  { account, id, ackKey = "" }: Pick<StoredMessage, "account" | "id" | "ackKey">,
  attempt: number,
): string => {
  const of = { account, messageId: id, attempt };
  return `${makeMac(of, ackKey)}.${attempt}.${id}.${Buffer.from(account).toString("base64url")}`;
};

/** Parses a token. Returns null for any other text. */
export function parseAttemptToken(text: string): AttemptToken | null {
  const [, mac, attempt, messageId, account] = tokenPattern.exec(text) ?? [];
  if (mac === undefined || messageId === undefined || account === undefined) return null;
  return { mac, attempt: Number(attempt), messageId, account: Buffer.from(account, "base64url").toString() };
}

const tokenPattern = /^([\w-]{43})\.(\d{1,9})\.(msg_\w{1,64})\.([\w-]{1,1000})$/;

/** Reports whether a token is that of its attempt. Compares in constant time. */
export function isAttemptToken(token: AttemptToken, ackKey: string): boolean {
  const expected = Buffer.from(makeMac(token, ackKey));
  const received = Buffer.from(token.mac);
  return received.length === expected.length && timingSafeEqual(received, expected);
}

const makeMac = ({ account, messageId, attempt }: LeaseRef, ackKey: string): string =>
  createHmac("sha256", ackKey)
    .update(JSON.stringify([account, messageId, attempt]))
    .digest("base64url");
