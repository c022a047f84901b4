import type { Terms, LimitName } from "./accountTerms.ts";
import type { ConsoleSession } from "./consoleSession.ts";
import type { Token } from "./rights.ts";
import type { AccountId, Millis } from "../values/basics.ts";

/** The keys with which deliveries are signed. After a rotation, `next` becomes `current`. */
export type SigningKeys = { current: string; next: string };

/**
 * A token that was valid. Only its hash is kept. `id`: `main` for a replaced main token. `rights`: absent if
 * they are not known.
 */
export type RevokedToken = {
  hash: string;
  id: string;
  name: string;
  rights?: Pick<Token, "verbs" | "destinations">;
};

/**
 * The origins whose messages are not sent, but wait for pullers, and the key of the tokens of their attempts.
 * The key stays if the last origin is removed, because pullers may still hold attempts.
 */
export type PulledOrigins = { key: string; origins: readonly string[] };

/** One tenant. All other rows belong to an account. */
export type Account = {
  id: AccountId;
  /** The user name of the account, for people. */
  name: string;
  password: string;
  token: string;
  /** SHA-256 of the token in hex. The account of a request is found by it. */
  tokenHash: string;
  signingKeys: SigningKeys;
  /** When the signing keys were last rotated, and the key that was current until then. */
  lastRotation?: { at: Millis; key: string };
  /** Open sessions of the web console, the oldest first. They end when the token is replaced. */
  sessions?: readonly ConsoleSession[];
  /** The last tokens that were revoked, the oldest first. */
  revoked?: readonly RevokedToken[];
  /** Absent: no origin was ever pulled. */
  pulled?: PulledOrigins;
  createdAt: Millis;
} & Terms;

/**
 * Changes of an account. Only the given limits change; a limit of null removes an override, so that the limit
 * of the plan applies again.
 */
export type AccountChange = Partial<
  Pick<
    Account,
    | "customerId"
    | "plan"
    | "isPlanHeld"
    | "state"
    | "budget"
    | "reservedPrice"
    | "hasProductionPack"
    | "signsStandard"
    | "allowedHosts"
  >
> & { limits?: { readonly [L in LimitName]?: number | null } };
