import type { Decision, Draft } from "../decision/command.ts";
import { maxPatterns, normalizePattern } from "../model/publishRights.ts";
import { Refusal } from "../values/errors.ts";
import { limits } from "../values/limits.ts";
import type { AccountId, Millis } from "../values/basics.ts";
import { takeQuota } from "../limits/rowLimits.ts";
import { requireActiveAccount } from "../accounts/plans.ts";
import { toRevoked, withRevoked } from "../accounts/revokedTokens.ts";
import type { Scope, Token } from "../model/rights.ts";
import { verbs } from "../model/rights.ts";
import { minute } from "../values/time.ts";

/** The properties of a new token. */
export type TokenRequest = Pick<Token, "name" | "verbs" | "destinations" | "expiresAt">;

/**
 * Creates a token for the account itself, or for the holder of one of its tokens. A token can give only
 * rights that it has itself. Throws `Refusal`.
 */
export const createToken: Decision<
  { account: AccountId; hash: string; scope: Scope | null } & TokenRequest,
  Token
> = {
  decide: ({ account, hash, scope, ...request }, draft, moment) => {
    const owner = requireActiveAccount(draft.get("accounts", account));
    const checkedRequest = assertTokenRequest(request, moment.now);
    if (scope) assertWithinScope(scope, checkedRequest);
    takeQuota(draft, owner, { name: "tokens" });
    const token: Token = {
      account,
      id: moment.newId("tok"),
      hash,
      ...checkedRequest,
      createdAt: moment.now,
      usedAt: null,
      madeBy: scope?.id ?? null,
    };
    draft.put("tokens", token);
    return token;
  },
};

function assertTokenRequest(
  { name, verbs: requestedVerbs, destinations, expiresAt }: TokenRequest,
  now: Millis,
): TokenRequest {
  if (name.length > limits.nameLength)
    throw new Refusal("invalid", `name: exceeds the limit of ${limits.nameLength} characters`);
  if (requestedVerbs.length === 0)
    throw new Refusal("invalid", `verbs: empty; use one or more of ${verbs.join(", ")}`);
  if (expiresAt !== null && expiresAt <= now)
    throw new Refusal("invalid", "expires: in the past; use a later time");
  if (destinations.length > maxPatterns)
    throw new Refusal(
      "invalid",
      `destinations: ${destinations.length} exceeds the limit of ${maxPatterns}; patterns can end in a star`,
    );
  if (destinations.length > 0 && !requestedVerbs.some((verb) => verb === "publish" || verb === "receive"))
    throw new Refusal("invalid", "destinations: requires the verb publish or receive");
  if (destinations.length > 0 && requestedVerbs.includes("manage"))
    throw new Refusal(
      "invalid",
      "destinations: not valid with the verb manage, which allows publishing anywhere; " +
        "remove the verb, or create two tokens",
    );
  const patterns = [...new Set(destinations.map(normalizePattern))];
  return {
    name,
    verbs: verbs.filter((verb) => requestedVerbs.includes(verb)),
    destinations: patterns,
    expiresAt,
  };
}

/**
 * Throws `Refusal` if a new token would have more rights than `scope`. Only verbs and expiry are compared:
 * the creating token has the verb `manage`, so its destinations are not restricted.
 */
function assertWithinScope(scope: Scope, request: TokenRequest): void {
  const missing = request.verbs.find((verb) => !scope.verbs.includes(verb));
  if (missing !== undefined)
    throw new Refusal(
      "forbidden",
      `verbs: this token does not have the verb ${missing}, so it cannot give it to another token`,
    );
  if (scope.expiresAt !== null && (request.expiresAt ?? Infinity) > scope.expiresAt)
    throw new Refusal("forbidden", "expires: later than this token expires; use an earlier time");
}

type Named = { account: AccountId; id: string };

/** Revokes a token at once. Its account remembers its hash, for requests that still use it. */
export const revokeToken: Decision<Named, { revoked: boolean }> = {
  decide: ({ account, id }, draft) => {
    const token = draft.get("tokens", account, id);
    if (!token) return { revoked: false };
    draft.drop("tokens", account, id);
    const owner = draft.get("accounts", account);
    if (owner && owner.deletedAt === undefined) draft.put("accounts", withRevoked(owner, toRevoked(token)));
    return { revoked: true };
  },
};

/** The last use of a token is recorded at most once a minute, so that a busy token causes few writes. */
const useInterval: Millis = minute;

/** Reports whether it is time to record the use of a token. */
export const shouldNoteUse = ({ usedAt }: Pick<Token, "usedAt">, now: Millis): boolean =>
  usedAt === null || Math.abs(now - usedAt) >= useInterval;

/** Records that a token is used now. */
export const noteTokenUse: Decision<Named, { noted: boolean }> = {
  decide: ({ account, id }, draft: Draft, { now }) => {
    const token = draft.get("tokens", account, id);
    if (!token || !shouldNoteUse(token, now)) return { noted: false };
    draft.put("tokens", { ...token, usedAt: now });
    return { noted: true };
  },
};
