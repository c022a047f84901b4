import { fingerprint } from "./fingerprint.ts";
import { memoize } from "../caches/memoize.ts";

/** The parts of a URL, with the names that `URL` gives them. */
export type ParsedUrl = Readonly<
  Pick<
    URL,
    "protocol" | "host" | "hostname" | "port" | "origin" | "username" | "password" | "pathname" | "search"
  >
>;

/**
 * Returns the parts of a URL; null if the text is not a URL. Results are remembered, because most messages go
 * to known URLs, each message needs the parts about six times, and parsing takes a microsecond.
 */
export const parseUrl = memoize((text): ParsedUrl | null => {
  const url = URL.parse(text);
  if (url === null) return null;
  const { protocol, host, hostname, port, origin, username, password, pathname, search } = url;
  return { protocol, host, hostname, port, origin, username, password, pathname, search };
});

/**
 * Returns the host and port of a destination, in lower case. Messages with the same host and port share
 * delivery capacity. Throws `TypeError` if the text is not a URL.
 */
export const parseHost = (url: string): string => requireUrl(url).host;

function requireUrl(url: string): ParsedUrl {
  const parsed = parseUrl(url);
  if (parsed === null) throw new TypeError("not a URL");
  return parsed;
}

/**
 * Returns the path and query as they were given, byte for byte, because a signed or oddly encoded path must
 * arrive unchanged. Only characters that a request line cannot hold are encoded. A URL that is written in an
 * unusual way, such as with backslashes, is normalized.
 */
export function requestPath(text: string, url: ParsedUrl): string {
  const rest = /^https?:\/\/[^/?#\\\0-\x20]+((?:[/?][^#\0-\x20]*)?)(?:#.*)?$/is.exec(text)?.[1];
  if (rest === undefined) return url.pathname + url.search;
  const path = rest.startsWith("/") ? rest : `/${rest}`;
  return path.replace(/[^\x21-\x7e]+/g, (odd) => encodeURIComponent(odd.toWellFormed()));
}

/**
 * `host` is the result of `parseHost`. If the deliveries of an account to one endpoint are limited, they are
 * counted by `endpoint`.
 */
export type Address = { readonly host: string; readonly endpoint: string };

/**
 * The longest endpoint, in characters, that is kept unchanged. Endpoints are keys, and a database does not
 * accept keys as long as a URL.
 */
const maxEndpointLength = 512;

/**
 * Returns the host and the endpoint of a destination. An endpoint is scheme, host, port and path, without
 * credentials, query and fragment. The path is exactly the path that is sent. If the endpoint is longer than
 * 512 characters, a space and a fingerprint replace its path. This cannot be confused with a path, because no
 * path contains a space. Throws `TypeError` if the text is not a URL.
 */
export const parseAddress = memoize((url): Address => {
  const parsed = requireUrl(url);
  const { protocol, host } = parsed;
  const [path = ""] = requestPath(url, parsed).split("?", 1);
  const endpoint = `${protocol}//${host}${path}`;
  return {
    host,
    endpoint: endpoint.length <= maxEndpointLength ? endpoint : `${protocol}//${host} ${fingerprint(path)}`,
  };
});
