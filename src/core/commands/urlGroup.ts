import type { Decision, Draft, Key } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import { limits } from "../values/limits.ts";
import { fingerprint } from "../values/fingerprint.ts";
import type { AccountId, Endpoint, Group, HeaderList, Letter } from "../model/message.ts";
import { needsOfPlace, takePlace } from "../sending/quotas.ts";
import { acting, howToRaise, limitsOf } from "../accounts/plans.ts";
import { mustHaveStorage } from "../accounts/storageQuota.ts";

/**
 * The letters that a letter comes to: itself, or a copy for each endpoint of its group as the group is now. A
 * deduplication key holds for each endpoint by itself.
 */
export function addressed<L extends Omit<Letter, "body">>(draft: Draft, account: AccountId, letter: L): L[] {
  if (letter.group === null) return [letter];
  const endpoints = draft.get("groups", account, letter.group)?.endpoints ?? [];
  return endpoints.map((endpoint) => letterTo(letter, endpoint));
}

function letterTo<L extends Omit<Letter, "body">>(letter: L, { name, url }: Endpoint): L {
  const { query } = letter;
  const deduplication =
    letter.deduplication === null ? null : `${letter.deduplication} ${url.length > longestInKey ? fingerprint(url) : url}`;
  return { ...letter, url: query === undefined ? url : urlWith(query, url), endpoint: name, deduplication };
}

/** Returns the URL with a query behind the one that it has, and before its fragment. */
function urlWith(query: string, url: string): string {
  const [, base = url, fragment = ""] = /^([^#]*)(#.*)?$/s.exec(url) ?? [];
  const separator = !base.includes("?") ? "?" : /[?&]$/.test(base) ? "" : "&";
  return `${base}${separator}${query}${fragment}`;
}

/** Throws `Refusal` if the URL of an endpoint would be too long with this query. */
export function checkUrlsWith(query: string, { name, endpoints }: Group): void {
  const longest = Math.max(0, ...endpoints.map(({ url }) => urlWith(query, url).length));
  if (longest <= limits.urlLength) return;
  const problem = `is too long for an endpoint of the URL group ${name}: its URL would have ${longest} characters`;
  throw new Refusal("invalid", `destination: the query ${problem}, the limit is ${limits.urlLength}`);
}

/** The refusal of what needs a group whose endpoints are not known any more. */
export const damagedGroupRefused = (name: string): Refusal =>
  new Refusal(
    "invalid",
    `the URL group ${name} is damaged in the store, so its endpoints are not known; give it all of them again (POST /v2/topics/${name}/endpoints), delete it, or restore a backup`,
  );

/** A key of a database cannot be as long as a URL. */
const longestInKey = 512;

/** Which group of an account. Its name has been checked. */
type Named = { account: AccountId; name: string };

const needsOf = ({ account, name }: Named): { groups: readonly Key[] } => ({ groups: [[account, name]] });

/**
 * Adds endpoints to a group, which is made if there is none, or if the one that is there is damaged. One that has the name of an endpoint of the group, or else
 * its URL, takes its place: no two of a group have the same name, or the same URL.
 */
export const addEndpoints: Decision<Named & { endpoints: readonly Endpoint[] }, Group> = {
  needs: ({ account, name }) => ({ accounts: [[account]], groups: [[account, name]] }),
  further: ({ account, name }, draft) => (draft.get("groups", account, name) ? {} : needsOfPlace(draft, account, { name: "groups" })),
  decide: ({ account, name, endpoints: added }, draft, { now }) => {
    const owner = acting(draft.get("accounts", account));
    mustHaveStorage(owner, { goesOn: false });
    checkCount(added.length, "in one request");
    const known = draft.get("groups", account, name);
    const group = known && !known.damaged ? known : { account, name, createdAt: now, updatedAt: now, endpoints: [], headers: [] };
    const endpoints = added.reduce(withEndpoint, group.endpoints);
    checkCount(endpoints.length, `in the URL group ${name}`, limitsOf(owner).endpoints, howToRaise(owner, "endpoints"));
    checkBytes(endpoints);
    if (!known) takePlace(draft, owner, { name: "groups" });
    const changed = { ...group, updatedAt: now, endpoints };
    draft.put("groups", changed);
    return changed;
  },
};

function withEndpoint(endpoints: readonly Endpoint[], added: Endpoint): readonly Endpoint[] {
  const byName = added.name === null ? -1 : endpoints.findIndex(({ name }) => name === added.name);
  const byUrl = endpoints.findIndex(({ url }) => url === added.url);
  const place = byName >= 0 ? byName : byUrl;
  const present = endpoints[place];
  if (!present) return [...endpoints, added];
  const changed = { name: added.name ?? present.name, url: added.url };
  return endpoints.flatMap((endpoint, at) => (at === place ? [changed] : endpoint.url === added.url ? [] : [endpoint]));
}

function checkCount(count: number, where: string, most: number = limits.endpoints, more = ""): void {
  if (count > most) throw new Refusal("limit-exceeded", `endpoints: ${count} ${where}, the limit is ${most}${more}`);
}

function checkBytes(endpoints: readonly Endpoint[]): void {
  const length = endpoints.reduce((sum, { name, url }) => sum + (name?.length ?? 0) + url.length, 0);
  if (length > limits.groupLength)
    throw new Refusal(
      "limit-exceeded",
      `endpoints: ${length} characters of names and URLs, the limit for a URL group is ${limits.groupLength}`,
    );
}

/** An endpoint that is to go: by its name, by its URL, or by both. */
export type EndpointNamed = { name: string | null; url: string | null };

/** Takes endpoints out of a group; the group goes with its last one. What is not in it is passed over. Throws `Refusal` when there is no such group. */
export const removeEndpoints: Decision<Named & { endpoints: readonly EndpointNamed[] }, { removed: number }> = {
  needs: needsOf,
  decide: ({ account, name, endpoints: removed }, draft, { now }) => {
    checkCount(removed.length, "in one request");
    const group = present(draft, { account, name });
    const goes = (endpoint: Endpoint): boolean => removed.some((one) => isMeant(one, endpoint));
    const endpoints = group.endpoints.filter((endpoint) => !goes(endpoint));
    if (endpoints.length === 0) draft.drop("groups", account, name);
    else if (endpoints.length < group.endpoints.length) draft.put("groups", { ...group, updatedAt: now, endpoints });
    return { removed: group.endpoints.length - endpoints.length };
  },
};

/** Who gives a name and a URL means the endpoint that has both. */
const isMeant = (meant: EndpointNamed, { name, url }: Endpoint): boolean =>
  (meant.name === null || meant.name === name) && (meant.url === null || meant.url === url);

/** Replaces the default headers of a group. Throws `Refusal` when there is no such group. */
export const setGroupHeaders: Decision<Named & { headers: HeaderList }, Group> = {
  needs: needsOf,
  decide: ({ headers, ...named }, draft, { now }) => {
    const changed = { ...present(draft, named), updatedAt: now, headers };
    draft.put("groups", changed);
    return changed;
  },
};

function present(draft: Draft, { account, name }: Named): Group {
  const group = draft.get("groups", account, name);
  if (group?.damaged) throw damagedGroupRefused(name);
  if (group) return group;
  throw new Refusal(
    "not-found",
    `name: there is no URL group ${name}; GET /v2/topics lists those there are, POST /v2/topics/${name}/endpoints makes this one`,
  );
}

/** Removes a group, if there is one. Messages that were made for it stay. */
export const deleteGroup: Decision<Named, { deleted: number }> = {
  needs: needsOf,
  decide: ({ account, name }, draft) => {
    if (!draft.get("groups", account, name)) return { deleted: 0 };
    draft.drop("groups", account, name);
    return { deleted: 1 };
  },
};
