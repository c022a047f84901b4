import { createHmac, timingSafeEqual } from "node:crypto";
import type { Bytes } from "../../core/model/message.ts";
import { CallRejection } from "./verificationResult.ts";

export type Algorithm = "sha1" | "sha256" | "sha512";
export type Encoding = "hex" | "base64";

/** A keyed hash (HMAC, RFC 2104) that a sender put into `header`: `given` are those it put there, any of which will do. */
export type Mac = {
  header: string;
  given: readonly string[];
  /** What comes before each of them; one without it is passed over. */
  prefix?: string;
  keys: readonly (string | Bytes)[];
  /** What is signed: these, one after another, texts in UTF-8. */
  signed: readonly (string | Bytes)[];
  algorithm: Algorithm;
  encoding: Encoding;
};

/** Rejects unless one of the keys signed. Returns the signature in the one way in which we would write it. */
export function checkMac(mac: Mac): string {
  const found = findSignature(mac);
  if (found === null) throw new CallRejection(`${mac.header}: the signature does not match; ${whatToCheck}`);
  return found;
}

/** Whether one of the keys signed: see `findSignature`. */
export const hasValidSignature = (mac: Mac): boolean => findSignature(mac) !== null;

/**
 * Returns the signature that one of the keys made, or null. The comparison takes constant time. Throws `Rejected` for a text that cannot be a
 * signature.
 */
function findSignature(mac: Mac): string | null {
  const given = listWellFormed(mac);
  if (given.length === 0) throw new CallRejection(`${mac.header}: has no signature of the form ${mac.prefix ?? ""}${describeForm(mac)}`);
  let found: string | null = null;
  for (const key of mac.keys) {
    const own = Buffer.from(computeMac(key, mac));
    for (const one of given) if (one.length === own.length && timingSafeEqual(one, own)) found = one.toString();
  }
  return found;
}

/** Whether two texts are the same, without telling by its time how much of them was. */
export function isSameText(one: string, other: string): boolean {
  const a = Buffer.from(one);
  const b = Buffer.from(other);
  return a.length === b.length && timingSafeEqual(a, b);
}

/** What an owner does about a signature that is well-formed and wrong. */
export const whatToCheck = "check that the secret of this source is the sender's, and that nothing between changes the body";

const digestBytes: Record<Algorithm, number> = { sha1: 20, sha256: 32, sha512: 64 };

type SignatureForm = Pick<Mac, "algorithm" | "encoding">;

const signatureLength = ({ algorithm, encoding }: SignatureForm): number =>
  encoding === "hex" ? 2 * digestBytes[algorithm] : 4 * Math.ceil(digestBytes[algorithm] / 3);

const describeForm = (form: SignatureForm): string => `<${signatureLength(form)} characters of ${form.encoding}> (${form.algorithm})`;

/** Of what was given, what can be a signature at all, as we would write it. */
function listWellFormed(mac: Mac): Buffer[] {
  const prefix = mac.prefix ?? "";
  const digits = mac.encoding === "hex" ? /^[0-9a-f]+$/i : /^[a-z0-9+/]+={0,2}$/i;
  return mac.given.flatMap((text) => {
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
