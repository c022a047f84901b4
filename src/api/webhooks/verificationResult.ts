import { limits } from "../../core/values/limits.ts";

/**
 * What verifying a call came to. Accepted: publish it; `eventId` is the sender's own id of the event, the same when it sends the
 * event again, or null where it gives none. With `signed` the event is known by its signature instead, because the sender signs neither an id nor
 * a time; `topic` is what the sender says it is about, and is not signed. Answered: a handshake; answer it so, and publish nothing. Rejected: `reason` is for the
 * owner of the source, and holds no secret.
 */
export type VerificationResult =
  | { kind: "accepted"; eventId: string | null; signed?: { signature: string; topic: string } }
  | { kind: "answered"; status: number; headers: Record<string, string>; body: string }
  | { kind: "rejected"; reason: string };

/** Thrown within a scheme to reject a call; `verify` turns it into a verdict. */
export class CallRejection extends Error {}

/** Accepts a call. An id that is no text, empty, or longer than a name may be counts as none, so that nothing is taken for a repetition. */
export function acceptCall(eventId: unknown): VerificationResult {
  const isId = typeof eventId === "string" && eventId !== "" && eventId.length <= limits.nameLength;
  return { kind: "accepted", eventId: isId ? eventId : null };
}

/** Accepts a call that is known by its signature, for each topic. */
export const acceptCallOnce = (signature: string, topic: string | null = null): VerificationResult => ({
  kind: "accepted",
  eventId: null,
  signed: { signature, topic: topic ?? "" },
});

/** Answers a handshake with a text that the sender chose: as plain text, which no browser takes for a page. */
export function echoChallenge(challenge: unknown): VerificationResult {
  if (typeof challenge !== "string" || challenge === "") throw new CallRejection("the handshake: has no challenge to answer with");
  if (challenge.length > longestChallenge)
    throw new CallRejection(`the handshake: its challenge has ${challenge.length} characters, of which the limit is ${longestChallenge}`);
  const headers = { "content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff" };
  return { kind: "answered", status: 200, headers, body: challenge };
}

const longestChallenge = 2048;
