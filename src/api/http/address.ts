import { isIP, isIPv6 } from "node:net";

/**
 * Returns the first of these texts that is an IP address, or null. An IPv4 address is returned in IPv4
 * notation, even if the socket uses IPv6.
 */
export function findAddress(...texts: (string | undefined)[]): string | null {
  const address = texts.find((text) => text !== undefined && isIP(text.replace(/%.*/, "")) !== 0);
  return address?.replace(/^::ffff:(?=\d+\.)/i, "") ?? null;
}

/** Returns the name under which a client is counted: its IPv4 address, or its IPv6 network of 64 bits. */
export function toNetwork(address: string | null): string {
  if (address === null || !isIPv6(address)) return address ?? "nowhere";
  const [head = "", tail] = address.replace(/%.*/, "").split("::");
  const left = head === "" ? [] : head.split(":");
  const right = tail === undefined || tail === "" ? [] : tail.split(":");
  const zeros = tail === undefined ? 0 : Math.max(0, 8 - left.length - right.length);
  return [...left, ...Array.from({ length: zeros }, () => "0"), ...right]
    .slice(0, 4)
    .map((part) => Number.parseInt(part, 16))
    .join(":");
}
