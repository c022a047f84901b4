import type { Draft } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import { limits } from "../values/limits.ts";
import { fingerprint } from "../values/fingerprint.ts";
import type { AccountId } from "../values/basics.ts";
import type { Endpoint, UrlGroup } from "../model/urlGroup.ts";
import type { MessageInput } from "../model/message.ts";

/**
 * Returns the input itself or, if it names a group, a copy for each current endpoint of the group. A
 * deduplication key applies to each endpoint separately.
 */
export function listRecipients<L extends Omit<MessageInput, "body">>(
  draft: Draft,
  account: AccountId,
  input: L,
): L[] {
  if (input.group === null) return [input];
  const endpoints = draft.inspect("urlGroups", account, input.group)?.endpoints ?? [];
  return endpoints.map((endpoint) => toEndpointInput(input, endpoint));
}

function toEndpointInput<L extends Omit<MessageInput, "body">>(input: L, { name, url }: Endpoint): L {
  const { query } = input;
  const deduplication =
    input.deduplication === null
      ? null
      : `${input.deduplication} ${url.length > maxUrlInKey ? fingerprint(url) : url}`;
  return {
    ...input,
    url: query === undefined ? url : appendQuery(query, url),
    endpoint: name,
    deduplication,
  };
}

/** Returns the URL with a query appended to its own query, before its fragment. */
function appendQuery(query: string, url: string): string {
  const [, base = url, fragment = ""] = /^([^#]*)(#.*)?$/s.exec(url) ?? [];
  const separator = !base.includes("?") ? "?" : /[?&]$/.test(base) ? "" : "&";
  return `${base}${separator}${query}${fragment}`;
}

/** Throws `Refusal` if the URL of an endpoint would be too long with this query. */
export function assertQueryLength(query: string, { name, endpoints }: UrlGroup): void {
  const longest = Math.max(0, ...endpoints.map(({ url }) => appendQuery(query, url).length));
  if (longest <= limits.urlLength) return;
  throw new Refusal(
    "invalid",
    `destination: the query is too long for an endpoint of the URL group ${name}: ` +
      `its URL would have ${longest} characters, the limit is ${limits.urlLength}`,
  );
}

/** The maximum length of a URL in a deduplication key. A database key cannot be as long as a URL. */
const maxUrlInKey = 512;
