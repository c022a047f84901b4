import type { Scope } from "../../engine/core/model/rights.ts";
import { findDisclosureRefusal } from "../../engine/core/model/rights.ts";
import type { IncomingRequest } from "./route.ts";
import { throwIfRefused } from "../../engine/core/values/errors.ts";

/**
 * Returns the scope of a request's token, for a command that checks it. Returns an empty object if the token
 * has all rights of its account.
 */
export function readScope({ proof }: Pick<IncomingRequest, "proof">): { scope?: Scope } {
  return proof !== null && typeof proof.right === "object" ? { scope: proof.right } : {};
}

/**
 * Reports whether the token of a request may read. A token with its own rights may be limited to publishing.
 */
export const mayRead = (incoming: Pick<IncomingRequest, "proof">): boolean =>
  readScope(incoming).scope?.verbs.includes("read") ?? true;

/**
 * Throws `Refusal` if a token may not read, and its request would send stored data to one of these URLs,
 * which the request has chosen. `content` names the data in the refusal. Each route that takes a URL for
 * stored data calls this, or executes a command that applies the same rule with `scope`.
 */
export function assertMayReadToSend(
  incoming: Pick<IncomingRequest, "proof">,
  content: string,
  urls: readonly string[],
): void {
  const { scope } = readScope(incoming);
  throwIfRefused(scope && findDisclosureRefusal(scope, { content, urls, allowedUrls: [] }));
}
