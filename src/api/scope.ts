import type { Scope } from "../core/rights.ts";
import type { Incoming } from "./route.ts";

/** The rights of the token of a request, for a command that has to look at them; nothing where it has those of the account. */
export function scopeIn({ proof }: Pick<Incoming, "proof">): { scope?: Scope } {
  return proof !== null && typeof proof.right === "object" ? { scope: proof.right } : {};
}
