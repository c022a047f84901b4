import type { AccountId } from "../core/message.ts";
import type { Target } from "./target.ts";

/** What is logged of a request. Never a token, a query, a header or a body. `fault`: what went wrong on our side. */
export type RequestLine = { method: string; path: string; status: number; ms: number; account: AccountId | null; fault?: string };

const mostShown = 200;

/** The path as it may be logged. Of a destination only scheme and host: its path is often a secret, as that of an intake of webhooks. */
export function shownPath({ path }: Target): string {
  const before = "/v2/publish/";
  if (!path.startsWith(before)) return path.slice(0, mostShown);
  const [, scheme, host] = /^(https?):\/{1,2}(?:[^/?#]*@)?([^/@:?#]*)/i.exec(path.slice(before.length)) ?? [];
  return scheme === undefined ? `${before}…` : `${before}${scheme}://${host ?? ""}`.slice(0, mostShown);
}
