import { hashToken, parseAccountId, parsePassword } from "../api/auth/token.ts";
import type { Account } from "../engine/core/model/account.ts";
import { makeToken } from "../engine/core/values/tokenText.ts";
import type { ServerConfig } from "./config.ts";

/** An account without its creation time. */
export type NewAccount = Omit<Account, "createdAt">;

type AccountCredentials = Pick<Account, "id" | "name" | "password" | "signingKeys">;

const withToken = (
  credentials: AccountCredentials,
  token = makeToken(credentials.id, credentials.password),
): NewAccount => ({
  ...credentials,
  token,
  tokenHash: hashToken(token),
});

/**
 * Returns the first account of a new store, with random credentials. `secret` returns random text, as for a
 * signing key.
 */
export function makeFirstAccount(uuid: string, secret: () => string): NewAccount {
  return makeAccount({ id: uuid, name: "owner", secret });
}

/**
 * Returns the first account with the credentials of the settings, or null if they have none. A token contains
 * the id and the password of its account.
 */
export function readGivenAccount({
  ownerToken,
  signingKey,
  nextSigningKey,
}: Pick<ServerConfig, "ownerToken" | "signingKey" | "nextSigningKey">): NewAccount | null {
  const id = parseAccountId(ownerToken);
  const password = parsePassword(ownerToken);
  if (id === null || password === null) return null;
  const signingKeys = { current: signingKey, next: nextSigningKey };
  return withToken({ id, name: "owner", password, signingKeys }, ownerToken);
}

/** Returns an account with random credentials. */
export function makeAccount({
  id,
  name,
  secret,
}: {
  id: string;
  name: string;
  secret: () => string;
}): NewAccount {
  return withToken({
    id,
    name,
    password: withoutPrefix(secret()),
    signingKeys: { current: secret(), next: secret() },
  });
}

const withoutPrefix = (secret: string): string => secret.replace(/^sig_/, "");

/**
 * The well-known accounts of local development. Their credentials are public, so `waypost start` never
 * creates them.
 */
export const developmentAccounts: readonly NewAccount[] = [
  makeDevelopmentAccount("defaultUser", "defaultPassword", [
    "sig_7kYjw48mhY7kAjqNGcy6cr29RJ6r",
    "sig_5ZB6DVzB1wjE8S6rZ7eenA8Pdnhs",
  ]),
  makeDevelopmentAccount("testUser1", "testPassword", [
    "sig_7GVPjvuwsfqF65iC8fSrs1dfYruM",
    "sig_5NoELc3EFnZn4DVS5bDs2Nk4b7Ua",
  ]),
  makeDevelopmentAccount("testUser2", "testPassword", [
    "sig_6jWGaWRxHsw4vMSPJprXadyvrybF",
    "sig_7qHbvhmahe5GwfePDiS5Lg3pi6Qx",
  ]),
  makeDevelopmentAccount("testUser3", "testPassword", [
    "sig_5T8FcSsynBjn9mMLBsXhpacRovJf",
    "sig_7GFR4YaDshFcqsxWRZpRB161jguD",
  ]),
];

function makeDevelopmentAccount(
  id: string,
  password: string,
  [current, next]: readonly [string, string],
): NewAccount {
  return withToken({ id, name: id, password, signingKeys: { current, next } });
}

/**
 * Returns the credentials as lines for a shell or an `.env` file, under Waypost's own names and under the
 * names that QStash clients read.
 */
export function formatEnvironment(account: NewAccount, url: string): string {
  const { token, signingKeys, id, name, password } = account;
  const shared = {
    URL: url,
    TOKEN: token,
    CURRENT_SIGNING_KEY: signingKeys.current,
    NEXT_SIGNING_KEY: signingKeys.next,
  };
  const formatLines = (prefix: string, values: Record<string, string>): string[] =>
    Object.entries(values).map(([key, value]) => `${prefix}_${key}="${value}"`);
  return [
    ...formatLines("WAYPOST", { ...shared, ACCOUNT_ID: id, USER: name, PASSWORD: password }),
    ...formatLines("QSTASH", shared),
  ].join("\n");
}
