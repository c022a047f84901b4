import { hash, randomBytes } from "node:crypto";
import { Refusal } from "../../core/values/errors.ts";
import type { WebhookSource } from "../../core/model/message.ts";
import type { Store } from "../../store/store.ts";

/** What comes before the secret in the URL of a source. */
const sourceCallPath = "/v2/in/";

/** The secret part of a URL: 192 bits that nobody can guess. It is shown once, and only its hash is kept. */
export const makeSourceSecret = (): string => randomBytes(24).toString("base64url");

/** SHA-256 in hex: what a source is looked up by. */
export const hashSourceSecret = (secret: string): string => hash("sha256", secret, "hex");

/** The URL that a sender is given. `origin`: the public URL of this server. */
export const makeSourceUrl = (origin: string, secret: string): string => `${origin}${sourceCallPath}${secret}`;

/**
 * The source that a secret belongs to. It is asked for with each call, so that a revoked one ends at once. What has no
 * source is refused like whatever else is not there.
 */
export async function findSourceBySecret(store: Store, secret: string): Promise<WebhookSource> {
  const source = await store.read.sourceBySecret(hashSourceSecret(secret));
  if (source) return source;
  throw new Refusal("not-found", "path: there is nothing at this path");
}
