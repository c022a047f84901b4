/** The parts of a URL, named as those of `URL` are. */
export type ParsedUrl = Readonly<
  Pick<URL, "protocol" | "host" | "hostname" | "port" | "origin" | "username" | "password" | "pathname" | "search">
>;

/**
 * What `URL.parse` makes of a text; null when it is no URL. Remembered: most messages go where others went, each is asked for its parts half
 * a dozen times, and parsing takes a microsecond.
 */
export function parsedUrl(text: string): ParsedUrl | null {
  const remembered = known.get(text);
  if (remembered !== undefined) return remembered;
  const url = URL.parse(text);
  if (url === null) return null;
  const { protocol, host, hostname, port, origin, username, password, pathname, search } = url;
  const parsed = { protocol, host, hostname, port, origin, username, password, pathname, search };
  if (known.size >= mostKnown) known.clear();
  if (text.length <= longestKnown) known.set(text, parsed);
  return parsed;
}

/** Host and port of a destination, in lower case: what hands are shared out by. Throws for what is no URL. */
export function hostOf(url: string): string {
  const parsed = parsedUrl(url);
  if (parsed === null) throw new TypeError("not a URL");
  return parsed.host;
}

const known = new Map<string, ParsedUrl>();
const mostKnown = 1000;
const longestKnown = 256;
