import { headerMap } from "../../engine/core/sending/callback.ts";
import type { HeaderList } from "../../engine/core/values/basics.ts";
import type { Rejection, WebhookSource } from "../../engine/core/model/webhookSource.ts";
import { redactBody, redactHeaders } from "../../engine/core/model/redaction.ts";
import { readRedaction, redactSettings } from "../../api/publishing/keptSettings.ts";
import { readUnkept } from "./rejections.ts";
import type { RouteContext } from "../../api/route/route.ts";
import { bodyFields } from "../../api/fields/content.ts";
import { sha256 } from "../../api/http/sha256.ts";
import { toSettings } from "../../api/publishing/sourceSettings.ts";
import { verificationSchema } from "./schemes/verification.ts";

/** Returns sources as the API shows them, in their order. */
export async function readSourcesJson(
  sources: readonly WebhookSource[],
  { store }: Pick<RouteContext, "store">,
): Promise<Record<string, unknown>[]> {
  const ids = sources.map(({ id }) => id);
  const accepted = await store.read.sourceCalls(sources[0]?.account ?? "", ids);
  return sources.map((source) => sourceJson(source, { store, accepted: accepted.get(source.id) ?? 0 }));
}

/** Returns a source as the API shows it. */
export const readSourceJson = async (
  source: WebhookSource,
  context: Pick<RouteContext, "store">,
): Promise<Record<string, unknown>> => (await readSourcesJson([source], context))[0] ?? {};

/**
 * Returns a source as the API shows it, without secrets. `rejected` includes the calls that this node has
 * counted but not yet stored.
 */
function sourceJson(
  source: WebhookSource,
  { store, accepted }: Pick<RouteContext, "store"> & { accepted: number },
): Record<string, unknown> {
  const { id, name, destination, headers, deduplicate, paused, createdAt, acceptedAt, rejectedAt } = source;
  const lastCallAt = Math.max(acceptedAt ?? 0, rejectedAt ?? 0);
  const rejected = source.rejected + readUnkept(store, id);
  return {
    sourceId: id,
    name,
    destination,
    settings: toSettings(redactSettings(headers)),
    verification: verificationJson(source),
    deduplicate,
    paused,
    createdAt,
    ...(acceptedAt === null ? {} : { acceptedAt }),
    ...(lastCallAt === 0 ? {} : { lastCallAt }),
    accepted,
    rejected,
  };
}

function verificationJson({ verification }: WebhookSource): { scheme: string; secrets: number } | null {
  if (verification === null) return null;
  const { scheme, secret } = verificationSchema.parse(verification);
  return { scheme, secrets: typeof secret === "string" ? 1 : secret.length };
}

/** Returns a rejected call as the API shows it. Hides what the settings of its source hide in messages. */
export function rejectionJson(rejection: Rejection, settings: HeaderList): Record<string, unknown> {
  const { time, reason, method, headers, body, size, callerIp, others } = rejection;
  const redaction = readRedaction(settings);
  const { text, base64 } = bodyFields(redactBody(body, redaction, sha256));
  return {
    time,
    reason,
    method,
    header: headerMap(redactHeaders(headers, redaction, sha256)),
    bodySize: size,
    ...(text === undefined ? {} : { body: text }),
    ...(base64 === undefined ? {} : { bodyBase64: base64 }),
    ...(callerIp === null ? {} : { callerIP: callerIp }),
    ...(rejection.cut || (size > body.length && redaction?.body !== true) ? { truncated: true } : {}),
    ...(others === 0 ? {} : { notKept: others }),
  };
}
