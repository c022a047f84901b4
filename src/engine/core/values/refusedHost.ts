/**
 * A host that the rules for outgoing requests refuse. `address` is the refused address, or a loopback name.
 * `allow` is the entry of WAYPOST_EGRESS_ALLOW that would allow the address; null if no entry should allow
 * it. `isResolved` means that the address came from a name server, so the sender of the URL may not know the
 * address.
 */
export type RefusedHost = { address: string; allow: string | null; isResolved: boolean };

/**
 * Returns why a host (in the form that URLs have) is refused, as far as this is known without a name server;
 * otherwise null.
 */
export type FindHostRefusal = (host: string) => RefusedHost | null;
