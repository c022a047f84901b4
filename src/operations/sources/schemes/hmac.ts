import { z } from "zod";
import { hmacDefaults } from "../../../engine/core/model/webhookSource.ts";
import { second } from "../../../engine/core/values/time.ts";
import type { WebhookCall } from "./call.ts";
import { readHeader, requireHeader } from "./call.ts";
import { assertFresh, parseTimestamp } from "./freshness.ts";
import { answerHandshake, handshakeSchema } from "./handshake.ts";
import { checkMac } from "./mac.ts";
import type { Scheme } from "./scheme.ts";
import { toSecretList, makeSchemeSchema } from "./scheme.ts";
import { acceptCall, acceptCallOnce } from "./verificationResult.ts";

const headerName = z
  .string()
  .max(128)
  .regex(/^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/, "is not a header name");

const timestamp = z.strictObject({
  header: headerName.describe("The header with the time of signing."),
  unit: z
    .enum(["seconds", "milliseconds"])
    .default(hmacDefaults.timestamp.unit)
    .describe("The unit of the time, which counts from 1970 (Unix time)."),
  toleranceSeconds: z
    .int()
    .min(1)
    .max(86_400)
    .default(hmacDefaults.timestamp.toleranceSeconds)
    .describe("How far the time may be in the past or future, in seconds."),
});

/** The settings for a sender that signs with its own HMAC format. */
export const hmacSchema = makeSchemeSchema("hmac", {
  header: headerName.describe("The header with the signature."),
  algorithm: z
    .enum(["sha1", "sha256", "sha512"])
    .default(hmacDefaults.algorithm)
    .describe("The hash function of the HMAC."),
  encoding: z
    .enum(["hex", "base64"])
    .default(hmacDefaults.encoding)
    .describe("The encoding of the signature in its header."),
  prefix: z
    .string()
    .max(64)
    .default(hmacDefaults.prefix)
    .describe("The text before the signature in its header, such as sha256=."),
  timestamp: timestamp
    .optional()
    .describe("The time of signing. Give it if the sender signs the time as well."),
  signed: z
    .string()
    .max(256)
    .default(hmacDefaults.signed)
    .describe(
      "The signed text, with {body} for the body and {timestamp} for the text of the timestamp header, " +
        "such as {timestamp}.{body}.",
    ),
  eventIdHeader: headerName
    .optional()
    .describe("The header with the sender's event id, which identifies repeated calls."),
  deduplicateBy: z
    .enum(["eventId", "signature"])
    .optional()
    .describe(
      "How repeated calls for one event are recognized. eventId (default): by eventIdHeader. signature: " +
        "two calls with the same signature are one event. This requires a timestamp, and a sender that " +
        "never has two events with the same time and body.",
    ),
  handshake: handshakeSchema.optional(),
}).superRefine((scheme, context) => {
  const refuse = (message: string, field = "signed"): void =>
    context.addIssue({ code: "custom", path: [field], message });
  if (scheme.deduplicateBy === "signature" && !scheme.timestamp)
    refuse("signature requires a signed timestamp", "deduplicateBy");
  if (scheme.deduplicateBy === "signature" && scheme.eventIdHeader !== undefined)
    refuse("signature cannot be combined with eventIdHeader; remove one", "deduplicateBy");
  if (countOccurrences(scheme.signed, "{body}") !== 1) refuse("must contain {body} once");
  if (scheme.timestamp && countOccurrences(scheme.signed, "{timestamp}") === 0)
    refuse("must contain {timestamp}, because an unsigned time proves nothing");
  if (!scheme.timestamp && countOccurrences(scheme.signed, "{timestamp}") > 0)
    refuse("contains {timestamp}; requires timestamp.header");
});

type HmacVerification = z.output<typeof hmacSchema>;

/** Verifies calls of senders with their own HMAC format. */
export const hmac: Scheme<HmacVerification> = {
  check(verification, call) {
    const answer = verification.handshake && answerHandshake(verification.handshake, call);
    if (answer) return answer;
    const { header, prefix, algorithm, encoding, secret } = verification;
    const signatures = [requireHeader(call, header)];
    const signature = checkMac({
      header,
      signatures,
      prefix,
      keys: toSecretList(secret),
      signed: fillTemplate(verification, call),
      algorithm,
      encoding,
    });
    if (verification.deduplicateBy === "signature") return acceptCallOnce(signature);
    return acceptCall(
      verification.eventIdHeader === undefined ? null : readHeader(call, verification.eventIdHeader),
    );
  },
};

/** Returns the signed parts: the text before the body, the body, and the text after it. */
function fillTemplate({ signed, timestamp }: HmacVerification, call: WebhookCall): (string | Uint8Array)[] {
  const time = timestamp ? readFreshTime(timestamp, call) : "";
  const [before = "", after = ""] = signed
    .split("{body}")
    .map((text) => text.replaceAll("{timestamp}", time));
  return [before, call.body, after];
}

function readFreshTime(
  { header, unit, toleranceSeconds }: z.output<typeof timestamp>,
  call: WebhookCall,
): string {
  const text = requireHeader(call, header);
  const at = parseTimestamp(header, text, unit === "seconds" ? second : 1);
  assertFresh({ name: header, at, now: call.now, tolerance: toleranceSeconds * second });
  return text;
}

const countOccurrences = (text: string, part: string): number => text.split(part).length - 1;
