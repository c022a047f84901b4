import { isIP } from "node:net";

/** The first of these that is an address. An IPv4 address is written as one, even where the socket speaks IPv6. */
export function addressIn(...texts: (string | undefined)[]): string | null {
  const address = texts.find((text) => text !== undefined && isIP(text.replace(/%.*/, "")) !== 0);
  return address?.replace(/^::ffff:(?=\d+\.)/i, "") ?? null;
}
