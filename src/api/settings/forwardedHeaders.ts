import { z } from "zod";
import { Refusal } from "../../engine/core/values/errors.ts";
import { limits } from "../../engine/core/values/limits.ts";
import type { HeaderList } from "../../engine/core/values/basics.ts";
import { canonicalName } from "../../engine/core/values/headers.ts";
import { parseBrandedName } from "../http/brand.ts";
import { readForwardedHeader } from "./forward.ts";

/** Headers in JSON: names in any case, each with a value or a list of values. */
export const headersSchema = z.record(
  z.string(),
  z.union([z.array(z.string("is not a string")), z.string()], "is not a list of texts"),
);

/** Returns headers from JSON as a list with one entry for each value. Names are in canonical form. */
export const toHeaderList = (map: z.output<typeof headersSchema>): HeaderList =>
  Object.entries(map).flatMap(([name, values]) =>
    [values].flat().map((value) => [canonicalName(name), value] as const),
  );

/**
 * Returns the headers that a delivery gets from the headers of a post: those of `forward-<name>`, and the
 * content type and encoding. Throws `Refusal`, which names `field`, for headers that HTTP cannot carry and
 * for more than `limits.headerBytes` of them.
 */
export function readForwardedHeaders(field: string, posted: HeaderList): HeaderList {
  const bytes = posted.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
  if (bytes > limits.headerBytes)
    throw new Refusal(
      "limit-exceeded",
      `${field}: ${bytes} bytes of headers, the limit is ${limits.headerBytes}`,
    );
  const headers = new Map<string, readonly [name: string, value: string]>();
  for (const [writtenName, value] of posted) {
    const name = writtenName.toLowerCase();
    const { name: unprefixedName } = parseBrandedName(name) ?? { name: "" };
    const forwarded = unprefixedName.startsWith("forward-")
      ? unprefixedName.slice("forward-".length)
      : /^content-(type|encoding)$/.test(name)
        ? name
        : null;
    const header =
      forwarded === null ? null : readForwardedHeader(`${field}: ${writtenName}`, forwarded, value.trim());
    // Clients send a header under several names and mean it once.
    if (header) headers.set(header.join("\n"), header);
  }
  return [...headers.values()];
}
