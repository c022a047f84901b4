import type { Scope } from "../core/rights.ts";
import type { Incoming } from "./route.ts";

/** The rights of the token of a request, for a command that has to look at them; nothing where it has those of the account. */
export function scopeIn({ proof }: Pick<Incoming, "proof">): { scope?: Scope } {
  return proof !== null && typeof proof.right === "object" ? { scope: proof.right } : {};
}

/** Whether the token of a request may read. One with rights of its own may be one that only publishes. */
export const mayRead = (incoming: Pick<Incoming, "proof">): boolean => scopeIn(incoming).scope?.verbs.includes("read") ?? true;
