import { limits } from "../../../engine/core/values/limits.ts";

/**
 * The result of verifying a call.
 *
 * "accepted": publish the call. `eventId` is the sender's id of the event, which is the same if the sender
 * repeats the call, or null if there is none. If `signed` is set, the event is known by its signature
 * instead, because the sender signs neither an id nor a time. `topic` is the sender's unsigned name for the
 * kind of event.
 *
 * "answered": a handshake. Send this answer and publish nothing.
 *
 * "rejected": `reason` is for the owner of the source, and contains no secret.
 */
export type VerificationResult =
  | { kind: "accepted"; eventId: string | null; signed?: { signature: string; topic: string } }
  | { kind: "answered"; status: number; headers: Record<string, string>; body: string }
  | { kind: "rejected"; reason: string };

/** Thrown within a scheme to reject a call. `verify` converts it into a result. */
export class CallRejection extends Error {}

/**
 * Accepts a call. An id that is not a string, is empty or is longer than a name may be is ignored, so that no
 * call is wrongly taken for a repetition.
 */
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

/**
 * Returns the answer to a handshake: a string that the sender chose. It is plain text, so that no browser
 * takes it for a page.
 */
export function echoChallenge(challenge: unknown): VerificationResult {
  if (typeof challenge !== "string" || challenge === "")
    throw new CallRejection("the handshake: has no challenge");
  if (challenge.length > longestChallenge)
    throw new CallRejection(
      `the handshake: a challenge of ${challenge.length} characters exceeds the limit of ${longestChallenge}`,
    );
  const headers = { "content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff" };
  return { kind: "answered", status: 200, headers, body: challenge };
}

const longestChallenge = 2048;
