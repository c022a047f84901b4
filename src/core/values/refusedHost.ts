/**
 * A host that the rules for outgoing requests refuse. `address`: the address that is refused, or a loopback name. `allow`: what
 * WAYPOST_EGRESS_ALLOW must contain to allow it; null for addresses that nobody is advised to allow. `isResolved`: the address came from
 * a name server, so the sender of the URL may not know it.
 */
export type RefusedHost = { address: string; allow: string | null; isResolved: boolean };

/** Returns why a host (as URLs have it) is refused, as far as that is known without asking a name server; otherwise null. */
export type RefusedHosts = (host: string) => RefusedHost | null;
