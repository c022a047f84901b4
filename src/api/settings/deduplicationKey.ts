import { createHash, hash } from "node:crypto";
import type { Bytes, HeaderList } from "../../engine/core/values/basics.ts";
import type { MessageSettings } from "./grammar.ts";

type Content = { destination: string; body: Bytes; headers: HeaderList };

/**
 * Returns the key by which duplicates of a message are found. An id takes precedence over the content. The
 * prefixes `i:` and `c:` prevent an id from matching a content.
 */
export function makeDeduplicationKey(values: MessageSettings["values"], content: Content): string | null {
  const id = values["deduplication-id"];
  if (id !== undefined) return `i:${hash("sha256", id, "hex")}`;
  return values["content-based-deduplication"] ? `c:${hashContent(content)}` : null;
}

/**
 * Returns a hash of a message's content. Each part is preceded by its length, so that different contents
 * never have the same bytes. Headers are sorted, because the order of headers with different names has no
 * meaning (RFC 9110, 5.3) and a proxy may change it.
 */
function hashContent({ destination, body, headers }: Content): string {
  const digest = createHash("sha256");
  const inOrder = headers.toSorted(([one], [other]) => (one < other ? -1 : Number(one > other)));
  for (const part of [destination, String(headers.length), ...inOrder.flat(), body]) {
    const bytes = typeof part === "string" ? Buffer.from(part) : part;
    digest.update(`${bytes.length}:`).update(bytes);
  }
  return digest.digest("hex");
}
