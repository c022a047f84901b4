import { createPublicKey, verify } from "node:crypto";
import type { Bytes } from "../../../engine/core/values/basics.ts";
import type { WebhookCall } from "./call.ts";
import { readHeader, requireHeader } from "./call.ts";
import { assertFresh, parseTimestamp, defaultTolerance } from "./freshness.ts";
import { hasValidSignature, whatToCheck } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { oneOrSeveral, toSecretList, secretText, makeSchemeSchema } from "./scheme.ts";
import { acceptCall, CallRejection } from "./verificationResult.ts";

const secretSchema = secretText
  .regex(
    /^(v1,)?(whsec_)?[A-Za-z0-9+/]{8,}={0,2}$|^whpk_[A-Za-z0-9+/]{43}=$/,
    "is not whsec_ and base64, or whpk_ and a public key",
  )
  .describe(
    "The secret as the sender shows it: whsec_ and base64, or whpk_ and base64 of an Ed25519 public key.",
  );

/**
 * Standard Webhooks 1.0: https://www.standardwebhooks.com, with `webhook-…` headers, or `svix-…` ones.
 * Signatures are `v1` (HMAC-SHA256, secrets `whsec_…`) or `v1a` (Ed25519, public keys `whpk_…`).
 */
export const standardSchema = makeSchemeSchema("standard", {
  secret: oneOrSeveral(secretSchema).describe(
    "The secret as the sender shows it, or a list of 1 to 4 secrets while it is being replaced. A secret " +
      "is whsec_ and base64, or whpk_ and base64 of an Ed25519 public key.",
  ),
});

/** Verifies calls of senders of Standard Webhooks. */
export const standard: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const brand = findHeaderPrefix(call);
    const header = `${brand}-signature`;
    const timeHeader = `${brand}-timestamp`;
    const id = requireHeader(call, `${brand}-id`);
    const time = requireHeader(call, timeHeader);
    assertFresh({
      name: timeHeader,
      at: parseTimestamp(timeHeader, time),
      now: call.now,
      tolerance: defaultTolerance,
    });
    const signatures = requireHeader(call, header).split(" ");
    const signed: SignedContent = { header, signatures, signed: [`${id}.${time}.`, call.body] };
    if (
      !toSecretList(secret).some((key) =>
        key.startsWith(publicKeyPrefix) ? isSignedByPublicKey(key, signed) : isSignedByHmac(key, signed),
      )
    )
      throw new CallRejection(`${header}: none of the signatures matches; ${whatToCheck}`);
    return acceptCall(id);
  },
};

/**
 * Returns the prefix of the headers. Svix existed before the standard and has the same headers under its own
 * names. The two sets are never mixed.
 */
function findHeaderPrefix(call: WebhookCall): "webhook" | "svix" {
  const has = (brand: string): boolean =>
    ["id", "timestamp", "signature"].some((name) => readHeader(call, `${brand}-${name}`) !== null);
  return has("svix") && !has("webhook") ? "svix" : "webhook";
}

type SignedContent = { header: string; signatures: readonly string[]; signed: readonly [string, Bytes] };

const publicKeyPrefix = "whpk_";
/**
 * The maximum number of signatures that are checked. A sender sends one for each secret that it is replacing.
 * Each `v1a` signature takes another pass over the body.
 */
const maxSignatures = { v1: 16, v1a: 4 };

/** Returns the signatures of one version. */
const listSignatures = ({ signatures }: SignedContent, version: keyof typeof maxSignatures): string[] =>
  signatures.filter((text) => text.startsWith(`${version},`)).slice(0, maxSignatures[version]);

function isSignedByHmac(secret: string, signed: SignedContent): boolean {
  const signatures = listSignatures(signed, "v1");
  const key = Buffer.from(secret.replace(/^(v1,)?(whsec_)?/, ""), "base64");
  return (
    signatures.length > 0 &&
    hasValidSignature({
      ...signed,
      signatures,
      prefix: "v1,",
      keys: [key],
      algorithm: "sha256",
      encoding: "base64",
    })
  );
}

function isSignedByPublicKey(publicKey: string, signed: SignedContent): boolean {
  const signatures = listSignatures(signed, "v1a").filter((text) => ed25519Signature.test(text));
  if (signatures.length === 0) return false;
  const key = createPublicKey({
    key: Buffer.concat([ed25519, Buffer.from(publicKey.slice(publicKeyPrefix.length), "base64")]),
    format: "der",
    type: "spki",
  });
  const text = Buffer.concat(signed.signed.map((part) => Buffer.from(part)));
  return signatures.some((one) => verify(null, text, key, Buffer.from(one.slice("v1a,".length), "base64")));
}

/**
 * A signature of 64 bytes in base64. Only one form is accepted, because the last digit before the padding has
 * four unused bits.
 */
const ed25519Signature = /^v1a,[A-Za-z0-9+/]{85}[AQgw]==$/;

/** The bytes before the 32 bytes of an Ed25519 public key in its DER form (RFC 8410). */
const ed25519 = Buffer.from("302a300506032b6570032100", "hex");
