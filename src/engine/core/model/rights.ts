import type { DestinationTarget } from "./publishRights.ts";
import { coversOrigin, findForbiddenDestination, parseDestinations } from "./publishRights.ts";
import { Refusal } from "../values/errors.ts";
import { limits } from "../values/limits.ts";
import type { AccountId, Millis } from "../values/basics.ts";
import type { Refused } from "../values/errors.ts";

/**
 * The verbs that a token may have. `manage` allows all changes other than publishing and receiving. `receive`
 * allows to pull messages, and so to read what is pulled.
 */
export const verbs = ["publish", "read", "manage", "receive"] as const;
/** One of the verbs of a token. */
export type Verb = (typeof verbs)[number];

/** A token in addition to the account's own two, with its own rights. Only the hash of its text is kept. */
export type Token = {
  account: AccountId;
  id: string;
  hash: string;
  /** A name for people. */
  name: string;
  verbs: readonly Verb[];
  /**
   * Patterns of allowed destinations: see `engine/core/model/publishRights.ts`. An empty list allows all
   * destinations.
   */
  destinations: readonly string[];
  createdAt: Millis;
  expiresAt: Millis | null;
  /** When the token was last used. It is written at most once a minute. */
  usedAt: Millis | null;
  /** The id of the token that created this one. Null means that the account itself created it. */
  madeBy: string | null;
};

/** The rights of a token as they travel with a command. */
export type Scope = Pick<Token, "id" | "verbs" | "destinations" | "expiresAt">;

/** Returns the rights of a token. */
export const toScope = ({ id, verbs: may, destinations, expiresAt }: Token): Scope => ({
  id,
  verbs: may,
  destinations,
  expiresAt,
});

/** Throws `Refusal` if a token does not have a verb. `purpose` says in the refusal what needs the verb. */
export function assertVerb(scope: Scope, verb: Verb, purpose = ""): void {
  if (scope.verbs.includes(verb)) return;
  throw new Refusal("forbidden", `token: requires '${verb}'${purpose}; ${formatVerbs(scope.verbs)}`, {
    remedy: createAnother,
  });
}

/**
 * Throws `Refusal` if a token is restricted to destinations. `action` is the problem that the error reports.
 */
export function assertUnrestricted({ destinations }: Scope, action: string): void {
  if (destinations.length > 0)
    throw new Refusal(
      "forbidden",
      `token: ${action}; this token may publish only to ${formatPatterns(destinations)}`,
      { remedy: createAnother },
    );
}

/**
 * Returns why a token may not publish a message; null if it may. The caller has checked the verb already.
 * `subject` is the subject of the error.
 */
export function findScopeRefusal(
  { destinations }: Scope,
  target: DestinationTarget,
  subject?: string,
): Refused | null {
  if (destinations.length === 0) return null;
  const forbidden = findForbiddenDestination(parseDestinations(destinations), target);
  if (forbidden === null) return null;
  const problem = `token: not valid for ${subject ?? forbidden}`;
  const message = `${problem}; it may publish only to ${formatPatterns(destinations)}`;
  return { refused: "forbidden", message, remedy: createAnother };
}

/** Throws `Refusal` if a token may not pull the messages to an origin. The caller has checked the verb. */
export function assertMayReceive({ destinations }: Scope, origin: string): void {
  if (destinations.length === 0 || coversOrigin(parseDestinations(destinations), origin)) return;
  throw new Refusal(
    "forbidden",
    `token: not valid for all messages to ${origin}; ` +
      `it may receive only from ${formatPatterns(destinations)}`,
    { remedy: createAnother },
  );
}

/**
 * `content` is the description of the content in the error. `urls` would receive the content. `allowedUrls`
 * may always receive it.
 */
type ContentTarget = { content: string; urls: readonly string[]; allowedUrls: readonly string[] };

/**
 * Returns why a token may not have stored content sent to these URLs; null if it may. Without the verb
 * `read`, stored content goes only to its own URLs. A caller that could choose another URL would read the
 * content there.
 */
export function findDisclosureRefusal(
  { verbs: may }: Scope,
  { content, urls, allowedUrls }: ContentTarget,
): Refused | null {
  if (may.includes("read")) return null;
  const allowed = new Set(allowedUrls.map(withoutFragment));
  const forbidden = urls.find((url) => !allowed.has(withoutFragment(url)));
  if (forbidden === undefined) return null;
  const problem = `token: requires 'read' to send ${content} to ${forbidden.slice(0, limits.nameLength)}`;
  return { refused: "forbidden", message: `${problem}; ${formatVerbs(may)}`, remedy: createAnother };
}

/** Returns a URL as it is requested, without its fragment. */
const withoutFragment = (url: string): string => URL.parse(url)?.href.replace(/#.*/s, "") ?? url;

const createAnother = { remedy: "create-token" } as const;

const formatVerbs = (verbs: readonly Verb[]): string =>
  `this token has only ${verbs.map((verb) => `'${verb}'`).join(", ")}`;

const formatPatterns = (patterns: readonly string[]): string =>
  patterns
    .slice(0, 5)
    .concat(patterns.length > 5 ? ["…"] : [])
    .join(", ");
