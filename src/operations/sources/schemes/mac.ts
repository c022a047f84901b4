import { createHmac, timingSafeEqual } from "node:crypto";
import type { Bytes } from "../../../engine/core/values/basics.ts";
import { CallRejection } from "./verificationResult.ts";

/** The hash function of an HMAC. */
export type Algorithm = "sha1" | "sha256" | "sha512";
/** The encoding of a signature. */
export type Encoding = "hex" | "base64";

/**
 * A keyed hash (HMAC, RFC 2104) that a sender put into `header`. `signatures` lists the signatures in the
 * header. One valid signature is enough.
 */
export type Mac = {
  header: string;
  signatures: readonly string[];
  /** The text before each signature. A signature without it is ignored. */
  prefix?: string;
  keys: readonly (string | Bytes)[];
  /** The signed parts, one after another. Texts are in UTF-8. */
  signed: readonly (string | Bytes)[];
  algorithm: Algorithm;
  encoding: Encoding;
};

/**
 * Returns the signature in its canonical form. Rejects the call if none of the keys made one of the
 * signatures.
 */
export function checkMac(mac: Mac): string {
  const found = findSignature(mac);
  if (found === null) throw new CallRejection(`${mac.header}: the signature does not match; ${whatToCheck}`);
  return found;
}

/** Reports whether one of the keys made one of the signatures: see `findSignature`. */
export const hasValidSignature = (mac: Mac): boolean => findSignature(mac) !== null;

/**
 * Returns the signature that one of the keys made, or null. The comparison takes constant time. Throws
 * `CallRejection` if none of the texts can be a signature.
 */
function findSignature(mac: Mac): string | null {
  const signatures = listWellFormed(mac);
  if (signatures.length === 0)
    throw new CallRejection(
      `${mac.header}: has no signature of the form ${mac.prefix ?? ""}${describeForm(mac)}`,
    );
  let found: string | null = null;
  for (const key of mac.keys) {
    const own = Buffer.from(computeMac(key, mac));
    for (const one of signatures)
      if (one.length === own.length && timingSafeEqual(one, own)) found = one.toString();
  }
  return found;
}

/** Reports whether two texts are equal. The time it takes does not show how much of them is equal. */
export function isSameText(one: string, other: string): boolean {
  const a = Buffer.from(one);
  const b = Buffer.from(other);
  return a.length === b.length && timingSafeEqual(a, b);
}

/** The advice to an owner for a well-formed but wrong signature. */
export const whatToCheck =
  "check that this source has the sender's secret and that no proxy changes the body";

const digestBytes: Record<Algorithm, number> = { sha1: 20, sha256: 32, sha512: 64 };

type SignatureForm = Pick<Mac, "algorithm" | "encoding">;

const signatureLength = ({ algorithm, encoding }: SignatureForm): number =>
  encoding === "hex" ? 2 * digestBytes[algorithm] : 4 * Math.ceil(digestBytes[algorithm] / 3);

const describeForm = (form: SignatureForm): string =>
  `<${signatureLength(form)} characters of ${form.encoding}> (${form.algorithm})`;

/** Returns the texts that have the form of a signature, in their canonical form. */
function listWellFormed(mac: Mac): Buffer[] {
  const prefix = mac.prefix ?? "";
  const digits = mac.encoding === "hex" ? /^[0-9a-f]+$/i : /^[a-z0-9+/]+={0,2}$/i;
  return mac.signatures.flatMap((text) => {
    const one = text.slice(prefix.length);
    if (!text.startsWith(prefix) || one.length !== signatureLength(mac) || !digits.test(one)) return [];
    return [Buffer.from(mac.encoding === "hex" ? one.toLowerCase() : one)];
  });
}

function computeMac(key: string | Bytes, { algorithm, encoding, signed }: Mac): string {
  const hmac = createHmac(algorithm, key);
  for (const part of signed) hmac.update(part);
  return hmac.digest(encoding);
}
