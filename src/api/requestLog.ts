import type { AccountId } from "../core/message.ts";
import type { Target } from "./target.ts";

/** What is logged of a request. Never a token, a query, a header or a body. `fault`: what went wrong on our side. */
export type RequestLine = { method: string; path: string; status: number; ms: number; account: AccountId | null; fault?: string };

const mostShown = 200;

/** The path as it may be logged. Of a destination only scheme and host: its path is often a secret, as that of an intake of webhooks. */
export function shownPath({ path }: Target): string {
  const [before] = /^\/v2\/(?:publish\/|trigger\/|enqueue\/[^/]+\/|schedules\/(?=https?(?::|%3a)))/i.exec(path) ?? [];
  if (before === undefined) return withoutSecret(path).slice(0, mostShown);
  const [, scheme, host] = /^(https?):\/{1,2}(?:[^/?#]*@)?([^/@:?#]*)/i.exec(path.slice(before.length)) ?? [];
  return `${before}${scheme === undefined ? "…" : `${scheme}://${host ?? ""}`}`.slice(0, mostShown);
}

/** What follows `/in/` is the secret of a source, and what follows `/hooks/` is all that its caller shows: a router understands it percent-encoded too, and senders mistype what is before it. */
function withoutSecret(path: string): string {
  const readable = path.replaceAll(/%([0-9a-f]{2})/gi, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
  const [, before] = /^(.*?\/(?:in|hooks)\/)./is.exec(readable) ?? [];
  return before === undefined ? path : `${before}…`;
}
