import type { Actor } from "../../engine/core/model/auditEntry.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import type { Store } from "../../engine/store/store.ts";
import type { NamedActor } from "../fields/actor.ts";

/** The names of tokens of an account by their ids. The name of a token may be empty. */
export type TokenNames = ReadonlyMap<string, string>;

/**
 * Returns the names of the tokens of an account that these ids belong to, also of tokens that were revoked
 * lately. Other ids have none.
 */
export async function readTokenNames(
  { read }: Pick<Store, "read">,
  account: AccountId,
  ids: Iterable<string | null | undefined>,
): Promise<TokenNames> {
  const wanted = [...new Set(ids)].flatMap((id) => (id?.startsWith("tok_") ? [id] : []));
  if (wanted.length === 0) return new Map();
  const tokens = await Promise.all(wanted.map((id) => read.findResource("tokens", account, id)));
  const names = new Map(wanted.flatMap((id, at) => (tokens[at] ? [[id, tokens[at].name] as const] : [])));
  if (names.size === wanted.length) return names;
  const revoked = (await read.account(account))?.revoked ?? [];
  for (const { id, name } of revoked) if (!names.has(id) && wanted.includes(id)) names.set(id, name);
  return names;
}

/** Returns a caller with the name of its token, if it has one. */
export function nameActor(actor: Actor, names: TokenNames): NamedActor {
  const tokenName = names.get(actor.token ?? "");
  return tokenName ? { ...actor, tokenName } : actor;
}
