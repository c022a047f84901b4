import { hash, randomBytes } from "node:crypto";
import { Refusal } from "../../core/values/errors.ts";
import type { Source } from "../../core/model/message.ts";
import type { Store } from "../../store/store.ts";

/** What comes before the secret in the URL of a source. */
const intakePath = "/v2/in/";

/** The secret part of a URL: 192 bits that nobody can guess. It is shown once, and only its hash is kept. */
export const newSecret = (): string => randomBytes(24).toString("base64url");

/** SHA-256 in hex: what a source is looked up by. */
export const hashOfSecret = (secret: string): string => hash("sha256", secret, "hex");

/** The URL that a sender is given. `origin`: the public URL of this server. */
export const intakeUrl = (origin: string, secret: string): string => `${origin}${intakePath}${secret}`;

/**
 * The source that a secret belongs to. It is asked for with each call, so that a revoked one ends at once. What has no
 * source is refused like whatever else is not there.
 */
export async function sourceWith(store: Store, secret: string): Promise<Source> {
  const source = await store.read.sourceBySecret(hashOfSecret(secret));
  if (source) return source;
  throw new Refusal("not-found", "path: there is nothing at this path");
}
