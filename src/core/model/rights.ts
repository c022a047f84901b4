import type { DestinationTarget } from "./destinations.ts";
import { findForbiddenDestination, parseDestinations } from "./destinations.ts";
import { Refusal } from "../values/errors.ts";
import { limits } from "../values/limits.ts";
import type { AccountId, Millis } from "./message.ts";

/** What a token may be used for. `manage`: to change whatever is not published. */
export const verbs = ["publish", "read", "manage"] as const;
export type Verb = (typeof verbs)[number];

/** A token of an account besides its own two, with rights of its own. Of its text only the hash is kept. */
export type Token = {
  account: AccountId;
  id: string;
  hash: string;
  /** For people. */
  name: string;
  verbs: readonly Verb[];
  /** Patterns: see `core/model/destinations.ts`. Empty: everywhere. */
  destinations: readonly string[];
  createdAt: Millis;
  expiresAt: Millis | null;
  /** To the minute. */
  usedAt: Millis | null;
  /** The id of the token by which it was made; null: by the account itself. */
  madeBy: string | null;
};

/** The rights of a token, for whoever has to decide by them. Plain data. */
export type Scope = Pick<Token, "id" | "verbs" | "destinations" | "expiresAt">;

export const toScope = ({ id, verbs: may, destinations, expiresAt }: Token): Scope => ({ id, verbs: may, destinations, expiresAt });

/** Throws `Refusal` when a token has not a verb. */
export function mustHaveVerb(scope: Scope, verb: Verb): void {
  if (scope.verbs.includes(verb)) return;
  throw new Refusal(
    "forbidden",
    `token: this request needs the verb ${verb}, and the token has ${scope.verbs.join(", ")} only; ${createTokenHint}`,
  );
}

/** Throws `Refusal` when a token is bound to destinations, by a request that goes elsewhere. `what`: where it goes. */
export function mustBeUnrestricted({ destinations }: Scope, action: string): void {
  if (destinations.length > 0)
    throw new Refusal(
      "forbidden",
      `token: ${action}, and the token may publish to ${formatPatterns(destinations)} only; ${createTokenHint}`,
    );
}

/**
 * Why a token may not publish a letter; null when it may. Needs the verb to have been checked. `of`: what it is that goes there,
 * in words.
 */
export function findScopeRefusal(
  { destinations }: Scope,
  target: DestinationTarget,
  subject?: string,
): { refused: "forbidden"; message: string } | null {
  if (destinations.length === 0) return null;
  const forbidden = findForbiddenDestination(parseDestinations(destinations), target);
  if (forbidden === null) return null;
  const message = `token: ${subject ?? forbidden} needs a token with the verb publish for it, and this one may publish to ${formatPatterns(destinations)} only; ${createTokenHint}`;
  return { refused: "forbidden", message };
}

/** `what`: the content that would be sent, for the error. `own`: URLs that receive it in any case. */
type ContentTarget = { content: string; urls: readonly string[]; allowedUrls: readonly string[] };

/**
 * Returns why a token may not have stored content sent to these URLs; null if it may. Without the verb `read`, stored content goes to its own
 * URLs only: a caller that chooses another URL would read the content there.
 */
export function findDisclosureRefusal(
  { verbs: may }: Scope,
  { content, urls, allowedUrls }: ContentTarget,
): { refused: "forbidden"; message: string } | null {
  if (may.includes("read")) return null;
  const allowed = new Set(allowedUrls.map(withoutFragment));
  const forbidden = urls.find((url) => !allowed.has(withoutFragment(url)));
  if (forbidden === undefined) return null;
  const message = `token: ${content} would be sent to ${forbidden.slice(0, limits.nameLength)}, which needs the verb read as well, and the token has ${may.join(", ")} only; ${createTokenHint}`;
  return { refused: "forbidden", message };
}

/** A URL as it is sent to: without its fragment. */
const withoutFragment = (url: string): string => URL.parse(url)?.href.replace(/#.*/s, "") ?? url;

const createTokenHint = '"waypost token create" or POST /v2/tokens makes another one';

const formatPatterns = (patterns: readonly string[]): string =>
  patterns
    .slice(0, 5)
    .concat(patterns.length > 5 ? ["…"] : [])
    .join(", ");
