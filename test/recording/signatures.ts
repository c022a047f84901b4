import { createHmac, hash } from "node:crypto";
import type { Arrival } from "./destination.ts";

/** Returns what a valid signature says, or a string that begins with "invalid". */
export function describeSignature(signature: string, body: Buffer, keys: Iterable<string>): string {
  const [head = "", payload = "", seal = ""] = signature.split(".");
  const sign = (key: string): string =>
    createHmac("sha256", key).update(`${head}.${payload}`).digest("base64url");
  if (![...keys].some((key) => sign(key) === seal)) return `invalid: ${signature}`;
  const claims = JSON.parse(Buffer.from(payload, "base64url").toString()) as Record<string, unknown>;
  const { exp, iat, body: digest, ...rest } = claims;
  if (digest !== `${hash("sha256", body, "base64url")}=`) return `invalid for this body: ${signature}`;
  const described = { ...rest, iat, life: Number(exp) - Number(iat) };
  return `valid: ${Buffer.from(head, "base64url").toString()} ${JSON.stringify(described)}`;
}

/** Describes the signatures of Standard Webhooks, one for each key, like `describeSignature`. */
export function describeStandard(signatures: string, arrival: Arrival, keys: Iterable<string>): string {
  const { headers, body } = arrival;
  const value = (name: string): string => headers.find(([other]) => other.toLowerCase() === name)?.[1] ?? "";
  const text = `${value("webhook-id")}.${value("webhook-timestamp")}.`;
  const sign = (key: string): string => createHmac("sha256", key).update(text).update(body).digest("base64");
  const expected = new Set([...keys].map((key) => `v1,${sign(key)}`));
  return signatures
    .split(" ")
    .map((one) => (expected.has(one) ? "valid" : `invalid: ${one}`))
    .join(" ");
}
