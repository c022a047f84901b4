import type { PublishResult } from "../../engine/core/commands/publish.ts";
import { serverAccount } from "../../engine/core/values/basics.ts";
import type { ErrorCode } from "../../engine/core/values/errors.ts";
import type { Proof } from "../auth/bearer.ts";
import { isWithoutToken } from "../auth/bearer.ts";
import { TokenRefusal } from "../auth/tokenRefusal.ts";
import { toProblem } from "../http/problems.ts";
import type { IncomingRequest, Route } from "./route.ts";
import type { Unpublished, UnpublishedCounter } from "./unpublishedCounter.ts";

type Sender = { proof: Proof | null; source: IncomingRequest["source"] };

/** A request that was refused. `route`: null if there is none. `address`: that of its caller. */
export type RefusedRequest = Sender & {
  route: Pick<Route, "operation" | "access"> | null;
  error: unknown;
  address: string | null;
};

/** Counts a request that was refused, if its route publishes. */
export function noteRefused(
  { noteUnpublished }: UnpublishedCounter,
  { route, error, address, ...sender }: RefusedRequest,
): void {
  if (!noteUnpublished || !route || (route.operation === undefined && route.access !== "source")) return;
  if (error instanceof TokenRefusal) {
    const { account, id: subject, reason } = error.refused;
    return noteUnpublished({ account, subject, reason, address });
  }
  // A request without a token names no application. `waypost doctor` sends such ones.
  if (isWithoutToken(error)) return;
  const { code: reason } = toProblem(error);
  // It may have been stored nevertheless.
  if (reason === "outcome-unknown" || reason === "too-slow") return;
  noteUnpublished({ ...readSubject(sender), reason, address });
}

/**
 * Counts the results of a request without a new message: duplicates, and the refused ones of a list. A
 * request that is refused as a whole is counted by `noteRefused`.
 */
export function noteUnstored(
  { noteUnpublished }: UnpublishedCounter,
  { callerIp: address, ...sender }: Pick<IncomingRequest, "callerIp" | "proof" | "source">,
  results: readonly (PublishResult | { code: ErrorCode } | undefined)[],
): void {
  if (!noteUnpublished) return;
  for (const result of results) {
    if (!result) continue;
    const refused = "code" in result ? result.code : "refused" in result ? result.refused : null;
    if (refused !== null) noteUnpublished({ ...readSubject(sender), reason: refused, address });
    else
      for (const { deduplicated, deduplicationId, messageId } of listPublished(result as PublishResult))
        if (deduplicated)
          noteUnpublished({
            ...{ ...readSubject(sender), reason: "deduplicated", address, messageId },
            ...(deduplicationId !== undefined && { deduplicationId }),
          });
  }
}

const listPublished = (result: PublishResult) =>
  "refused" in result ? [] : "each" in result ? result.each : [result];

function readSubject({ proof, source }: Sender): Pick<Unpublished, "account" | "subject"> {
  if (source) return { account: source.account, subject: source.id };
  if (!proof) return { account: serverAccount, subject: "unknown" };
  const { account, right, session } = proof;
  const token = right === "all" ? "main" : right === "read" ? "readOnly" : right.id;
  return { account: account.id, subject: session ? "session" : token };
}
