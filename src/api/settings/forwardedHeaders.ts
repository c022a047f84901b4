import { z } from "zod";
import { Refusal } from "../../core/values/errors.ts";
import { limits } from "../../core/values/limits.ts";
import type { HeaderList } from "../../core/model/message.ts";
import { canonicalName } from "../../core/values/headers.ts";
import { parseBrandedName } from "../http/brand.ts";
import { readForwardedHeader } from "./forward.ts";

/** Headers as JSON has them: names, in any case, to their values. */
export const headersSchema = z.record(z.string(), z.union([z.array(z.string("is not a text")), z.string()], "is not a list of texts"));

/** Those headers one by one, names in canonical form. */
export const toHeaderList = (map: z.output<typeof headersSchema>): HeaderList =>
  Object.entries(map).flatMap(([name, values]) => [values].flat().map((value) => [canonicalName(name), value] as const));

/**
 * What headers of a post mean for the delivery that comes of it: those of `forward-<name>`, and the content type. Throws
 * `Refusal` for what HTTP cannot carry, and for too much of it; `field` is named in it.
 */
export function readForwardedHeaders(field: string, posted: HeaderList): HeaderList {
  const bytes = posted.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
  if (bytes > limits.headerBytes)
    throw new Refusal("limit-exceeded", `${field}: ${bytes} bytes of headers, the limit is ${limits.headerBytes}`);
  const headers = new Map<string, readonly [name: string, value: string]>();
  for (const [written, value] of posted) {
    const name = written.toLowerCase();
    const { name: plain } = parseBrandedName(name) ?? { name: "" };
    const forwarded = plain.startsWith("forward-") ? plain.slice("forward-".length) : /^content-(type|encoding)$/.test(name) ? name : null;
    const header = forwarded === null ? null : readForwardedHeader(`${field}: ${written}`, forwarded, value.trim());
    // Clients write a name in more than one way, and mean it once.
    if (header) headers.set(header.join("\n"), header);
  }
  return [...headers.values()];
}
