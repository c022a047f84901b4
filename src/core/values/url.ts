import { fingerprint } from "./fingerprint.ts";
import { memoize } from "./memoize.ts";

/** The parts of a URL, named as those of `URL` are. */
export type ParsedUrl = Readonly<
  Pick<URL, "protocol" | "host" | "hostname" | "port" | "origin" | "username" | "password" | "pathname" | "search">
>;

/**
 * What `URL.parse` makes of a text; null when it is no URL. Remembered: most messages go where others went, each is asked for its parts half
 * a dozen times, and parsing takes a microsecond.
 */
export const parseUrl = memoize((text): ParsedUrl | null => {
  const url = URL.parse(text);
  if (url === null) return null;
  const { protocol, host, hostname, port, origin, username, password, pathname, search } = url;
  return { protocol, host, hostname, port, origin, username, password, pathname, search };
});

/** Returns host and port of a destination, in lower case: hands are shared out by them. Throws `TypeError` if it is not a URL. */
export const parseHost = (url: string): string => mustParseUrl(url).host;

function mustParseUrl(url: string): ParsedUrl {
  const parsed = parseUrl(url);
  if (parsed === null) throw new TypeError("not a URL");
  return parsed;
}

/**
 * Returns path and query as they were given, byte for byte: a signed or oddly encoded path must arrive as it is.
 * Only text that no request line can hold is encoded, and only a URL that is written in an unusual way is normalised.
 */
export function requestPath(text: string, url: ParsedUrl): string {
  const rest = /^https?:\/\/[^/?#\\\0-\x20]+((?:[/?][^#\0-\x20]*)?)(?:#.*)?$/is.exec(text)?.[1];
  if (rest === undefined) return url.pathname + url.search;
  const path = rest.startsWith("/") ? rest : `/${rest}`;
  return path.replace(/[^\x21-\x7e]+/g, (odd) => encodeURIComponent(odd.toWellFormed()));
}

/** `host`: as `parseHost` returns it. `endpoint`: deliveries are counted by it if an account limits them. */
export type Address = { readonly host: string; readonly endpoint: string };

/** The longest endpoint that is kept as it is. Endpoints are keys, and a database takes no key as long as a URL. */
const maxEndpointLength = 512;

/**
 * Returns the host and the endpoint of a destination. An endpoint is scheme, host, port and path, the path byte for byte as it is sent,
 * without credentials, query and fragment. If it is longer than 512 characters, a fingerprint replaces its path, after a space, which no
 * path contains. Throws `TypeError` if it is not a URL.
 */
export const parseAddress = memoize((url): Address => {
  const parsed = mustParseUrl(url);
  const { protocol, host } = parsed;
  const [path = ""] = requestPath(url, parsed).split("?", 1);
  const endpoint = `${protocol}//${host}${path}`;
  return { host, endpoint: endpoint.length <= maxEndpointLength ? endpoint : `${protocol}//${host} ${fingerprint(path)}` };
});
