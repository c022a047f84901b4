/**
 * A host that the rules for outgoing requests refuse. `address` is the refused address, or a loopback name.
 * `allow` is the entry of WAYPOST_EGRESS_ALLOW that would allow the host; null if no entry should, or if none
 * can be shown. `isResolved` means that the address came from a name server. The sender of the URL may then
 * not know the address, and `allow` is the name.
 */
export type RefusedHost = { address: string; allow: string | null; isResolved: boolean };

/**
 * Returns why a host (in the form that URLs have) is refused, as far as this is known without a name server;
 * otherwise null.
 */
export type FindHostRefusal = (host: string) => RefusedHost | null;

/** Called with a host (in the form that URLs have) that is refused. */
export type OnRefusedHost = (host: string, refused: RefusedHost) => void;
