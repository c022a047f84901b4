import { hash, randomBytes } from "node:crypto";
import { Refusal } from "../../engine/core/values/errors.ts";
import type { WebhookSource } from "../../engine/core/model/webhookSource.ts";
import type { Store } from "../../engine/store/store.ts";

/** The path that precedes the secret in the URL of a source. */
const sourceCallPath = "/v2/in/";

/**
 * Returns a new secret for the URL of a source: 192 random bits. It is shown once, and only its hash is kept.
 */
export const makeSourceSecret = (): string => randomBytes(24).toString("base64url");

/** Returns the SHA-256 of a secret in hex, by which its source is looked up. */
export const hashSourceSecret = (secret: string): string => hash("sha256", secret, "hex");

/** Returns the URL for the sender. `origin`: the public URL of this server. */
export const makeSourceUrl = (origin: string, secret: string): string =>
  `${origin}${sourceCallPath}${secret}`;

/**
 * Returns the source of a secret. It is read again for each call, so that a revoked secret is invalid at
 * once. If there is no source, throws the same `Refusal` as for an unknown path. The response therefore does
 * not reveal which paths exist.
 */
export async function findSourceBySecret(store: Store, secret: string): Promise<WebhookSource> {
  const source = await store.read.sourceBySecret(hashSourceSecret(secret));
  if (source) return source;
  throw new Refusal("not-found", "path: does not exist");
}
