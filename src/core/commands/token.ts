import type { Decision, Draft } from "../decision/command.ts";
import { maxPatterns, normalizePattern } from "../model/destinations.ts";
import { Refusal } from "../values/errors.ts";
import { limits } from "../values/limits.ts";
import type { AccountId, Millis } from "../model/message.ts";
import { quotaNeeds, takeQuota } from "../sending/quotas.ts";
import { requireActiveAccount } from "../accounts/plans.ts";
import type { Scope, Token } from "../model/rights.ts";
import { verbs } from "../model/rights.ts";
import { minute } from "../values/time.ts";

/** What is asked for of a new token. */
export type TokenRequest = Pick<Token, "name" | "verbs" | "destinations" | "expiresAt">;

/**
 * Makes a token, by the account itself or by one of its tokens, which can give no right that it does not have. Throws
 * `Refusal`.
 */
export const createToken: Decision<{ account: AccountId; hash: string; scope: Scope | null } & TokenRequest, Token> = {
  needs: ({ account }) => ({ accounts: [[account]] }),
  further: ({ account }, draft) => quotaNeeds(draft, account, { name: "tokens" }),
  decide: ({ account, hash, scope, ...request }, draft, moment) => {
    const owner = requireActiveAccount(draft.get("accounts", account));
    const checkedRequest = checkTokenRequest(request, moment.now);
    if (scope) mustBeWithin(scope, checkedRequest);
    takeQuota(draft, owner, { name: "tokens" });
    const created = { createdAt: moment.now, usedAt: null, madeBy: scope?.id ?? null };
    const token: Token = { account, id: moment.newId("tok"), hash, ...checkedRequest, ...created };
    draft.put("tokens", token);
    return token;
  },
};

function checkTokenRequest({ name, verbs: requestedVerbs, destinations, expiresAt }: TokenRequest, now: Millis): TokenRequest {
  if (name.length > limits.nameLength) throw new Refusal("invalid", `name: longer than ${limits.nameLength} characters`);
  if (requestedVerbs.length === 0) throw new Refusal("invalid", `verbs: empty; give some of ${verbs.join(", ")}`);
  if (expiresAt !== null && expiresAt <= now) throw new Refusal("invalid", "expires: in the past; such a token could never be used");
  if (destinations.length > maxPatterns)
    throw new Refusal("invalid", `destinations: ${destinations.length}, the limit is ${maxPatterns}; patterns can end in a star`);
  if (destinations.length > 0 && !requestedVerbs.includes("publish"))
    throw new Refusal("invalid", 'destinations: they bind what is published, and "publish" is none of the verbs');
  if (destinations.length > 0 && requestedVerbs.includes("manage"))
    throw new Refusal(
      "invalid",
      'destinations: whoever has the verb "manage" can set up what publishes anywhere; take it away, or make two tokens',
    );
  const patterns = [...new Set(destinations.map(normalizePattern))];
  return { name, verbs: verbs.filter((verb) => requestedVerbs.includes(verb)), destinations: patterns, expiresAt };
}

/** A token with the verb `manage` is bound to no destinations, so only its verbs and its end have to be looked at. */
function mustBeWithin(scope: Scope, request: TokenRequest): void {
  const missing = request.verbs.find((verb) => !scope.verbs.includes(verb));
  if (missing !== undefined)
    throw new Refusal("forbidden", `verbs: this token has not the verb ${missing}, so it cannot give it to another one`);
  if (scope.expiresAt !== null && (request.expiresAt ?? Infinity) > scope.expiresAt)
    throw new Refusal("forbidden", "expires: later than the token that makes it; give an earlier time");
}

type Named = { account: AccountId; id: string };

/** Ends a token at once. */
export const revokeToken: Decision<Named, { revoked: boolean }> = {
  needs: ({ account, id }) => ({ tokens: [[account, id]] }),
  decide: ({ account, id }, draft) => {
    const revoked = draft.get("tokens", account, id) !== undefined;
    if (revoked) draft.drop("tokens", account, id);
    return { revoked };
  },
};

/** The last use of a token is known to the minute, so that a busy one costs next to nothing. */
const useInterval: Millis = minute;

/** Whether it is time to note that a token is used. */
export const shouldNoteUse = ({ usedAt }: Pick<Token, "usedAt">, now: Millis): boolean =>
  usedAt === null || Math.abs(now - usedAt) >= useInterval;

/** Notes that a token is used now. */
export const noteTokenUse: Decision<Named, { noted: boolean }> = {
  needs: ({ account, id }) => ({ tokens: [[account, id]] }),
  decide: ({ account, id }, draft: Draft, { now }) => {
    const token = draft.get("tokens", account, id);
    if (!token || !shouldNoteUse(token, now)) return { noted: false };
    draft.put("tokens", { ...token, usedAt: now });
    return { noted: true };
  },
};
