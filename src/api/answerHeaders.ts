import type { Problem } from "./refusals.ts";
import { isOfAccounts } from "./refusals.ts";

/** The value of `Waypost-Ignored`: settings that were passed over. */
export const ignoredHeader = (names: readonly string[]): string =>
  [...new Set(names)]
    .slice(0, 50)
    .map((name) => name.slice(0, 100).replace(/[^\w-]/g, "?"))
    .join(", ");

/** Adds a warning to the headers of an answer. The header is a list: several warnings have commas between them. */
export const warn = (headers: Readonly<Record<string, string>>, text: string): Record<string, string> => ({
  ...headers,
  "Waypost-Warning": [headers["Waypost-Warning"], text.replaceAll(/[^\x20-\x7e]/g, "?")].filter(Boolean).join(", "),
});

/** What a refusal says besides its body: how to show who one is, and when to come again. */
export function problemHeaders(path: string, { status, headers, retryAfter: asked }: Problem): Record<string, string> {
  const scheme = isOfAccounts(path) ? 'Basic realm="waypost", charset="UTF-8"' : "Bearer";
  const retryAfter = asked ?? (status === 503 || (status === 429 && !headers) ? 1 : undefined);
  return {
    ...headers,
    ...(status === 401 && { "WWW-Authenticate": scheme }),
    ...(retryAfter !== undefined && { "Retry-After": String(retryAfter) }),
  };
}
