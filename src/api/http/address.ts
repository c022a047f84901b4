import { BlockList, isIP, isIPv6 } from "node:net";

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

/** The networks behind the names that the setting of trusted proxies accepts. */
const namedNetworks: Readonly<Record<string, readonly string[]>> = {
  loopback: ["127.0.0.0/8", "::1/128"],
  linklocal: ["169.254.0.0/16", "fe80::/10"],
  uniquelocal: ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"],
};

/** Returns a function that reports whether an address is in one of these networks or named networks. */
export function createNetworkCheck(networks: readonly string[]): (address: string | undefined) => boolean {
  const list = new BlockList();
  for (const network of networks.flatMap((one) => namedNetworks[one] ?? [one])) {
    const [base = "", bits] = network.split("/");
    const family = isIPv6(base) ? "ipv6" : "ipv4";
    list.addSubnet(base, Number(bits ?? (family === "ipv6" ? 128 : 32)), family);
  }
  return (address) => {
    const found = findAddress(address);
    return found !== null && list.check(found.replace(/%.*/, ""), isIPv6(found) ? "ipv6" : "ipv4");
  };
}
