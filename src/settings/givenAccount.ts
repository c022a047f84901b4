import { isDeleted } from "../engine/core/commands/account.ts";
import type { Account } from "../engine/core/model/account.ts";
import { type ServerConfig, toVariable } from "./config.ts";
import { ConfigRefused } from "./configSources.ts";
import { readGivenAccount } from "./credentials.ts";

/**
 * Refuses a start whose settings have other credentials than the store, as after a rotation. Otherwise the
 * operator would believe that the credentials of the settings work. Settings without credentials fit every
 * store.
 */
export function assertGivenAccount(settings: ServerConfig, accounts: readonly Account[]): void {
  const given = readGivenAccount(settings);
  if (given === null) return;
  const account = accounts.find(({ id }) => id === given.id);
  const { current, next } = given.signingKeys;
  if (!account)
    throw new ConfigRefused(
      `${token}: belongs to no account of this store, which has other credentials; ${removal}, ` +
        "or use another store",
    );
  if (isDeleted(account)) throw new ConfigRefused(`${token}: its account was deleted; ${removal}`);
  if (account.tokenHash !== given.tokenHash)
    throw new ConfigRefused(`${token}: the account ${account.name} has another token; ${correction}`);
  if (account.signingKeys.current !== current || account.signingKeys.next !== next)
    throw new ConfigRefused(`${key}: the account ${account.name} has other signing keys; ${correction}`);
}

const [token, key, nextKey] = (["ownerToken", "signingKey", "nextSigningKey"] as const).map(toVariable);
const removal = `remove ${token}, ${key} and ${nextKey}`;
const correction =
  `after a rotation, ${removal}, or set them to WAYPOST_TOKEN, WAYPOST_CURRENT_SIGNING_KEY and ` +
  "WAYPOST_NEXT_SIGNING_KEY of the output of waypost credentials";
