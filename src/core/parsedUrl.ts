import { remembered } from "./remembered.ts";

/** The parts of a URL, named as those of `URL` are. */
export type ParsedUrl = Readonly<
  Pick<URL, "protocol" | "host" | "hostname" | "port" | "origin" | "username" | "password" | "pathname" | "search">
>;

/**
 * What `URL.parse` makes of a text; null when it is no URL. Remembered: most messages go where others went, each is asked for its parts half
 * a dozen times, and parsing takes a microsecond.
 */
export const parsedUrl = remembered((text): ParsedUrl | null => {
  const url = URL.parse(text);
  if (url === null) return null;
  const { protocol, host, hostname, port, origin, username, password, pathname, search } = url;
  return { protocol, host, hostname, port, origin, username, password, pathname, search };
});

/** Host and port of a destination, in lower case: what hands are shared out by. Throws for what is no URL. */
export function hostOf(url: string): string {
  const parsed = parsedUrl(url);
  if (parsed === null) throw new TypeError("not a URL");
  return parsed.host;
}
