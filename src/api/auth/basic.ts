import type { Account } from "../../engine/core/model/account.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import type { Store } from "../../engine/store/store.ts";
import type { RequestTokens, Proof } from "./bearer.ts";
import { isSameSecret } from "./token.ts";

const howTo =
  "account: requires the header Authorization: Basic with the account's user name or id and its password";

/**
 * Returns a function that finds the account of a request by user name and password, as they are stored now. A
 * caller who knows neither cannot find out which accounts exist. The function throws `Refusal`.
 */
export function createBasicAuthenticator(
  store: Store,
): (request: Pick<RequestTokens, "authorization" | "from" | "attempts">) => Promise<Proof> {
  const names = new AccountNames(store);
  return async ({ authorization, from, attempts }) => {
    const { user, password } = readBasic(authorization, howTo);
    for (const id of await names.findIds(user)) {
      const account = await store.read.account(id);
      if (account && account.deletedAt === undefined && isSameSecret(account.password, password))
        return { account, by: "header", token: password, right: "all" };
    }
    const wrong = new Refusal("unauthorized", "account: user name or password is wrong or was replaced");
    throw attempts.recordFailure({ ...from(), user }, wrong);
  };
}

/**
 * Returns the user name and the password in an Authorization header. Throws `Refusal` with the text `howTo`
 * if the header has none.
 */
export function readBasic(
  authorization: string | undefined,
  howTo: string,
): { user: string; password: string } {
  const encoded = /^Basic +([\w+/=-]+) *$/i.exec(authorization ?? "")?.[1];
  const text = encoded === undefined ? "" : Buffer.from(encoded, "base64").toString();
  const user = text.slice(0, text.indexOf(":"));
  const password = text.slice(text.indexOf(":") + 1);
  if (!text.includes(":") || password === "") throw new Refusal("unauthorized", howTo);
  return { user, password };
}

/**
 * Finds the account ids that a user name can mean. Reads all names at once, and again after an account has
 * changed.
 */
class AccountNames {
  readonly #store: Store;
  #ids: Promise<ReadonlyMap<string, readonly string[]>> | null = null;

  constructor(store: Store) {
    this.#store = store;
    store.onAccounts(() => (this.#ids = null));
  }

  async findIds(user: string): Promise<readonly string[]> {
    if (/[\0\ud800-\udfff]/.test(user) || user === "") return [];
    const known = (await this.#names()).get(user) ?? [];
    return known.length > 0 ? known : [user];
  }

  #names(): Promise<ReadonlyMap<string, readonly string[]>> {
    const reading = (this.#ids ??= this.#store.read.accounts().then(mapIdsByName));
    reading.catch(() => (this.#ids = null));
    return reading;
  }
}

/**
 * Maps each name to the accounts that have it. An id always means its own account, even if another account
 * has that name.
 */
function mapIdsByName(accounts: readonly Account[]): ReadonlyMap<string, readonly string[]> {
  const ids = new Map<string, string[]>();
  for (const { id, name } of accounts) ids.set(name, [...(ids.get(name) ?? []), id]);
  for (const { id } of accounts) ids.set(id, [id]);
  return ids;
}
