import { createPublicKey, verify } from "node:crypto";
import type { Bytes } from "../../core/model/message.ts";
import type { WebhookCall } from "./call.ts";
import { headerOf, neededHeader } from "./call.ts";
import { checkFreshness, stampOf, usualTolerance } from "./freshness.ts";
import { hasMac, whatToCheck } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { oneOrSeveral, secretsOf, secretText, stored } from "./scheme.ts";
import { accepted, Rejected } from "./verdict.ts";

const secret = secretText
  .regex(/^(v1,)?(whsec_)?[A-Za-z0-9+/]{8,}={0,2}$|^whpk_[A-Za-z0-9+/]{43}=$/, "not whsec_ and base64, nor whpk_ and a public key")
  .describe("whsec_ and base64, as the sender shows it; or whpk_ and base64 of an Ed25519 public key.");

/**
 * Standard Webhooks 1.0: https://www.standardwebhooks.com, with `webhook-…` headers, or `svix-…` ones.
 * Signatures are `v1` (HMAC-SHA256, secrets `whsec_…`) or `v1a` (Ed25519, public keys `whpk_…`).
 */
export const standardSchema = stored("standard", { secret: oneOrSeveral(secret) });

export const standard: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const brand = brandOf(call);
    const [header, timeHeader] = [`${brand}-signature`, `${brand}-timestamp`];
    const id = neededHeader(call, `${brand}-id`);
    const time = neededHeader(call, timeHeader);
    checkFreshness({ name: timeHeader, at: stampOf(timeHeader, time), now: call.now, tolerance: usualTolerance });
    const given = neededHeader(call, header).split(" ");
    const signed: Signed = { header, given, signed: [`${id}.${time}.`, call.body] };
    if (!secretsOf(secret).some((key) => (key.startsWith(publicKeyPrefix) ? isSignedByOwner(key, signed) : isSignedWith(key, signed))))
      throw new Rejected(`${header}: none of its signatures matches; ${whatToCheck}`);
    return accepted(id);
  },
};

/** Svix was there before the standard, and has the same headers under its own names. The two are never mixed. */
function brandOf(call: WebhookCall): "webhook" | "svix" {
  const has = (brand: string): boolean => ["id", "timestamp", "signature"].some((name) => headerOf(call, `${brand}-${name}`) !== null);
  return has("svix") && !has("webhook") ? "svix" : "webhook";
}

type Signed = { header: string; given: readonly string[]; signed: readonly [string, Bytes] };

const publicKeyPrefix = "whpk_";
/** One for each secret that the sender is replacing. Of `v1a`, each takes another pass over the body. */
const mostSignatures = { v1: 16, v1a: 4 };

/** The signatures of one version. */
const valuesOf = ({ given }: Signed, version: keyof typeof mostSignatures): string[] =>
  given.filter((text) => text.startsWith(`${version},`)).slice(0, mostSignatures[version]);

function isSignedWith(secret: string, signed: Signed): boolean {
  const given = valuesOf(signed, "v1");
  const key = Buffer.from(secret.replace(/^(v1,)?(whsec_)?/, ""), "base64");
  return given.length > 0 && hasMac({ ...signed, given, prefix: "v1,", keys: [key], algorithm: "sha256", encoding: "base64" });
}

function isSignedByOwner(publicKey: string, signed: Signed): boolean {
  const given = valuesOf(signed, "v1a").filter((text) => ed25519Signature.test(text));
  if (given.length === 0) return false;
  const key = createPublicKey({
    key: Buffer.concat([ed25519, Buffer.from(publicKey.slice(publicKeyPrefix.length), "base64")]),
    format: "der",
    type: "spki",
  });
  const text = Buffer.concat(signed.signed.map((part) => Buffer.from(part)));
  return given.some((one) => verify(null, text, key, Buffer.from(one.slice("v1a,".length), "base64")));
}

/** 64 bytes in base64, of which there is one form only: the last digit before the padding has four bits that say nothing. */
const ed25519Signature = /^v1a,[A-Za-z0-9+/]{85}[AQgw]==$/;

/** What comes before the 32 bytes of an Ed25519 public key in its DER form (RFC 8410). */
const ed25519 = Buffer.from("302a300506032b6570032100", "hex");
