import type { Decision, Draft } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import type { Remedy } from "../values/remedy.ts";
import { limits } from "../values/limits.ts";
import type { AccountId, HeaderList } from "../values/basics.ts";
import type { Endpoint, UrlGroup } from "../model/urlGroup.ts";
import { assertHostsAllowed } from "../accounts/allowedHosts.ts";
import { takeQuota } from "../limits/rowLimits.ts";
import { requireActiveAccount, findRaise, readLimits } from "../accounts/plans.ts";
import { assertStorageAvailable } from "../limits/storageQuota.ts";

/** A group of an account. Its name has been validated. */
type Named = { account: AccountId; name: string };

/**
 * Adds endpoints to a group. The group is created if it does not exist or is damaged. An added endpoint
 * replaces the endpoint of the group that has the same name or, if there is none, the same URL: names and
 * URLs are unique within a group.
 */
export const addEndpoints: Decision<Named & { endpoints: readonly Endpoint[] }, UrlGroup> = {
  decide: ({ account, name, endpoints: added }, draft, { now, isDiskLow }) => {
    const owner = requireActiveAccount(draft.get("accounts", account));
    assertStorageAvailable(owner, { continuesRun: false, isDiskLow });
    assertCount(added.length, { where: "in one request", max: limits.endpoints });
    assertHostsAllowed(
      owner,
      added.map(({ url }) => url),
    );
    const known = draft.inspect("urlGroups", account, name);
    const group =
      known && !known.damaged
        ? known
        : { account, name, createdAt: now, updatedAt: now, endpoints: [], headers: [] };
    const endpoints = added.reduce(withEndpoint, group.endpoints);
    assertCount(endpoints.length, {
      where: `in the URL group ${name}`,
      max: readLimits(owner).endpoints,
      remedy: findRaise(owner, "endpoints"),
    });
    assertBytes(endpoints);
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
  return endpoints.flatMap((endpoint, at) =>
    at === index ? [changed] : endpoint.url === added.url ? [] : [endpoint],
  );
}

type EndpointLimit = { where: string; max: number; remedy?: Remedy | undefined };

function assertCount(count: number, { where, max, remedy }: EndpointLimit): void {
  if (count > max)
    throw new Refusal("limit-exceeded", `endpoints: ${count} ${where} exceeds the limit of ${max}`, {
      remedy,
    });
}

function assertBytes(endpoints: readonly Endpoint[]): void {
  const length = endpoints.reduce((sum, { name, url }) => sum + (name?.length ?? 0) + url.length, 0);
  if (length > limits.groupLength)
    throw new Refusal(
      "limit-exceeded",
      `endpoints: ${length} characters of names and URLs exceed the limit of ${limits.groupLength} ` +
        "for a URL group",
    );
}

/** An endpoint to remove: by its name, by its URL, or by both. */
export type EndpointSelector = { name: string | null; url: string | null };

/**
 * Removes endpoints from a group. The group is removed with its last endpoint. Endpoints that are not in the
 * group are skipped. Throws `Refusal` if the group does not exist.
 */
export const removeEndpoints: Decision<
  Named & { endpoints: readonly EndpointSelector[] },
  { removed: number }
> = {
  decide: ({ account, name, endpoints: removed }, draft, { now }) => {
    assertCount(removed.length, { where: "in one request", max: limits.endpoints });
    const group = requireGroup(draft, { account, name });
    const isRemoved = (endpoint: Endpoint): boolean => removed.some((one) => matchesEndpoint(one, endpoint));
    const endpoints = group.endpoints.filter((endpoint) => !isRemoved(endpoint));
    if (endpoints.length === 0) draft.drop("urlGroups", account, name);
    else if (endpoints.length < group.endpoints.length)
      draft.put("urlGroups", { ...group, updatedAt: now, endpoints });
    return { removed: group.endpoints.length - endpoints.length };
  },
};

/**
 * Reports whether a selector means an endpoint. A selector with a name and a URL means the endpoint that has
 * both.
 */
const matchesEndpoint = (selector: EndpointSelector, { name, url }: Endpoint): boolean =>
  (selector.name === null || selector.name === name) && (selector.url === null || selector.url === url);

/** Replaces the default headers of a group. Throws `Refusal` if the group does not exist. */
export const setGroupHeaders: Decision<Named & { headers: HeaderList }, UrlGroup> = {
  decide: ({ headers, ...named }, draft, { now }) => {
    const changed = { ...requireGroup(draft, named), updatedAt: now, headers };
    draft.put("urlGroups", changed);
    return changed;
  },
};

function requireGroup(draft: Draft, { account, name }: Named): UrlGroup {
  const group = draft.get("urlGroups", account, name);
  if (group) return group;
  throw new Refusal("not-found", `name: URL group ${name} does not exist`, {
    remedy: { remedy: "create-group", group: name },
  });
}

/** Removes a group if it exists. Messages that were created for it are not affected. */
export const deleteGroup: Decision<Named, { deleted: number }> = {
  decide: ({ account, name }, draft) => {
    if (!draft.inspect("urlGroups", account, name)) return { deleted: 0 };
    draft.drop("urlGroups", account, name);
    return { deleted: 1 };
  },
};
