import type { AccountId } from "../../core/model/message.ts";
import { containsToken } from "../settings/forward.ts";
import type { Target } from "../http/target.ts";

/** What is logged of a request. Never a token, a query, a header or a body. `fault`: what went wrong on our side. */
export type RequestLine = { method: string; path: string; status: number; ms: number; account: AccountId | null; fault?: string };

/**
 * The path as it may be logged: whole and as it came, unless it has what is or may be a secret. From there on it is `…`. Of a destination
 * scheme and host are shown: its path is often a secret, as that of an intake of webhooks. Case and encoding make no difference, because
 * a router understands several, and senders mistype. `token`: that of the request; a path with it in it is not shown at all.
 */
export function shownPath({ path }: Target, token = ""): string {
  const readable = decodeFully(path);
  if (readable === null || (token !== "" && containsToken(path, token))) return "…";
  const found = secretPrefix.exec(readable);
  const own = tokenPattern.exec(readable);
  if (own && own.index < (found?.index ?? Infinity)) return `${escapeForLog(readable.slice(0, own.index))}…`;
  if (found === null) return path;
  const [match] = found;
  const start = found.index + (match.endsWith("/") ? match.length : 0);
  const before = escapeForLog(readable.slice(0, start));
  const [, scheme, host] = /\/(?:in|hooks)\/$/i.test(match) ? [] : (destination.exec(readable.slice(start)) ?? []);
  if (scheme === undefined || tokenPattern.test(host ?? "")) return `${before}…`;
  return `${before}${scheme}://${escapeForLog(host ?? "")}`;
}

/**
 * What stands before a secret: the URL of a source follows `/in/`, all that the caller of a webhook shows follows `/hooks/`, and a
 * destination is a URL anywhere, or whatever follows where one belongs.
 */
const secretPrefix =
  /\/(?:in|hooks)\/(?=.)|\/v2\/(?:publish|trigger|enqueue\/[^/]+)\/(?=.)|\/v2\/schedules\/(?=[^/]*[^\w/.-]|[^/]+\/(?!(?:pause|resume)?\/?$))|https?:/is;

const destination = /^(https?):[/\\]*(?:[^/?#\\]*@)?(\[[^\]]*\]|[^/@:?#\\]*)/i;

/** As tokens of accounts begin, whatever they are for. Case matters in them, as nowhere else. */
const tokenPattern = /eyJ[\w+/-]{16,}/;

/** So often a text may be percent-encoded to be understood here. */
const maxDecoded = 5;

/** The text without percent-encoding, however often it was applied. Null: too often. */
function decodeFully(text: string): string | null {
  let readable = text;
  for (let turn = 0; turn < maxDecoded; turn++) {
    const next = readable.replaceAll(/%([0-9a-f]{2})/gi, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
    if (next === readable) return readable;
    readable = next;
  }
  return /%[0-9a-f]{2}/i.test(readable) ? null : readable;
}

/** As much of a decoded text as fits into a line. */
const escapeForLog = (text: string): string =>
  text.replaceAll(/[^\x21-\x7e]/g, (odd) => `%${odd.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`);
