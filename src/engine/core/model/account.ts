import type { Terms, LimitName } from "./accountTerms.ts";
import type { ConsoleSession } from "./consoleSession.ts";
import type { AccountId, Millis } from "../values/basics.ts";

/** The keys with which deliveries are signed. After a rotation, `next` becomes `current`. */
export type SigningKeys = { current: string; next: string };

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
