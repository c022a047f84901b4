import type { Decision, Draft, Key } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import { limits } from "../values/limits.ts";
import { fingerprint } from "../values/fingerprint.ts";
import type { AccountId, Endpoint, UrlGroup, HeaderList, MessageInput } from "../model/message.ts";
import { quotaNeeds, takeQuota } from "../sending/quotas.ts";
import { requireActiveAccount, formatRaiseHint, readLimits } from "../accounts/plans.ts";
import { mustHaveStorage } from "../accounts/storageQuota.ts";

/**
 * The letters that a letter comes to: itself, or a copy for each endpoint of its group as the group is now. A
 * deduplication key holds for each endpoint by itself.
 */
export function listRecipients<L extends Omit<MessageInput, "body">>(draft: Draft, account: AccountId, input: L): L[] {
  if (input.group === null) return [input];
  const endpoints = draft.get("urlGroups", account, input.group)?.endpoints ?? [];
  return endpoints.map((endpoint) => toEndpointInput(input, endpoint));
}

function toEndpointInput<L extends Omit<MessageInput, "body">>(input: L, { name, url }: Endpoint): L {
  const { query } = input;
  const deduplication = input.deduplication === null ? null : `${input.deduplication} ${url.length > maxUrlInKey ? fingerprint(url) : url}`;
  return { ...input, url: query === undefined ? url : appendQuery(query, url), endpoint: name, deduplication };
}

/** Returns the URL with a query behind the one that it has, and before its fragment. */
function appendQuery(query: string, url: string): string {
  const [, base = url, fragment = ""] = /^([^#]*)(#.*)?$/s.exec(url) ?? [];
  const separator = !base.includes("?") ? "?" : /[?&]$/.test(base) ? "" : "&";
  return `${base}${separator}${query}${fragment}`;
}

/** Throws `Refusal` if the URL of an endpoint would be too long with this query. */
export function checkQueryLength(query: string, { name, endpoints }: UrlGroup): void {
  const longest = Math.max(0, ...endpoints.map(({ url }) => appendQuery(query, url).length));
  if (longest <= limits.urlLength) return;
  const problem = `is too long for an endpoint of the URL group ${name}: its URL would have ${longest} characters`;
  throw new Refusal("invalid", `destination: the query ${problem}, the limit is ${limits.urlLength}`);
}

/** The refusal of what needs a group whose endpoints are not known any more. */
export const damagedGroupRefusal = (name: string): Refusal =>
  new Refusal(
    "invalid",
    `the URL group ${name} is damaged in the store, so its endpoints are not known; give it all of them again (POST /v2/topics/${name}/endpoints), delete it, or restore a backup`,
  );

/** A key of a database cannot be as long as a URL. */
const maxUrlInKey = 512;

/** Which group of an account. Its name has been checked. */
type Named = { account: AccountId; name: string };

const groupNeeds = ({ account, name }: Named): { urlGroups: readonly Key[] } => ({ urlGroups: [[account, name]] });

/**
 * Adds endpoints to a group, which is made if there is none, or if the one that is there is damaged. One that has the name of an endpoint of the group, or else
 * its URL, takes its place: no two of a group have the same name, or the same URL.
 */
export const addEndpoints: Decision<Named & { endpoints: readonly Endpoint[] }, UrlGroup> = {
  needs: ({ account, name }) => ({ accounts: [[account]], urlGroups: [[account, name]] }),
  further: ({ account, name }, draft) => (draft.get("urlGroups", account, name) ? {} : quotaNeeds(draft, account, { name: "groups" })),
  decide: ({ account, name, endpoints: added }, draft, { now }) => {
    const owner = requireActiveAccount(draft.get("accounts", account));
    mustHaveStorage(owner, { continuesRun: false });
    checkCount(added.length, "in one request");
    const known = draft.get("urlGroups", account, name);
    const group = known && !known.damaged ? known : { account, name, createdAt: now, updatedAt: now, endpoints: [], headers: [] };
    const endpoints = added.reduce(withEndpoint, group.endpoints);
    checkCount(endpoints.length, `in the URL group ${name}`, readLimits(owner).endpoints, formatRaiseHint(owner, "endpoints"));
    checkBytes(endpoints);
    if (!known) takeQuota(draft, owner, { name: "groups" });
    const changed = { ...group, updatedAt: now, endpoints };
    draft.put("urlGroups", changed);
    return changed;
  },
};

function withEndpoint(endpoints: readonly Endpoint[], added: Endpoint): readonly Endpoint[] {
  const byName = added.name === null ? -1 : endpoints.findIndex(({ name }) => name === added.name);
  const byUrl = endpoints.findIndex(({ url }) => url === added.url);
  const index = byName >= 0 ? byName : byUrl;
  const existing = endpoints[index];
  if (!existing) return [...endpoints, added];
  const changed = { name: added.name ?? existing.name, url: added.url };
  return endpoints.flatMap((endpoint, at) => (at === index ? [changed] : endpoint.url === added.url ? [] : [endpoint]));
}

function checkCount(count: number, where: string, max: number = limits.endpoints, hint = ""): void {
  if (count > max) throw new Refusal("limit-exceeded", `endpoints: ${count} ${where}, the limit is ${max}${hint}`);
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
export type EndpointSelector = { name: string | null; url: string | null };

/** Takes endpoints out of a group; the group goes with its last one. What is not in it is passed over. Throws `Refusal` when there is no such group. */
export const removeEndpoints: Decision<Named & { endpoints: readonly EndpointSelector[] }, { removed: number }> = {
  needs: groupNeeds,
  decide: ({ account, name, endpoints: removed }, draft, { now }) => {
    checkCount(removed.length, "in one request");
    const group = mustFindGroup(draft, { account, name });
    const isRemoved = (endpoint: Endpoint): boolean => removed.some((one) => matchesEndpoint(one, endpoint));
    const endpoints = group.endpoints.filter((endpoint) => !isRemoved(endpoint));
    if (endpoints.length === 0) draft.drop("urlGroups", account, name);
    else if (endpoints.length < group.endpoints.length) draft.put("urlGroups", { ...group, updatedAt: now, endpoints });
    return { removed: group.endpoints.length - endpoints.length };
  },
};

/** Who gives a name and a URL means the endpoint that has both. */
const matchesEndpoint = (selector: EndpointSelector, { name, url }: Endpoint): boolean =>
  (selector.name === null || selector.name === name) && (selector.url === null || selector.url === url);

/** Replaces the default headers of a group. Throws `Refusal` when there is no such group. */
export const setGroupHeaders: Decision<Named & { headers: HeaderList }, UrlGroup> = {
  needs: groupNeeds,
  decide: ({ headers, ...named }, draft, { now }) => {
    const changed = { ...mustFindGroup(draft, named), updatedAt: now, headers };
    draft.put("urlGroups", changed);
    return changed;
  },
};

function mustFindGroup(draft: Draft, { account, name }: Named): UrlGroup {
  const group = draft.get("urlGroups", account, name);
  if (group?.damaged) throw damagedGroupRefusal(name);
  if (group) return group;
  throw new Refusal(
    "not-found",
    `name: there is no URL group ${name}; GET /v2/topics lists those there are, POST /v2/topics/${name}/endpoints makes this one`,
  );
}

/** Removes a group, if there is one. Messages that were made for it stay. */
export const deleteGroup: Decision<Named, { deleted: number }> = {
  needs: groupNeeds,
  decide: ({ account, name }, draft) => {
    if (!draft.get("urlGroups", account, name)) return { deleted: 0 };
    draft.drop("urlGroups", account, name);
    return { deleted: 1 };
  },
};
