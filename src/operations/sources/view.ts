import type { WebhookSource } from "../../engine/core/model/webhookSource.ts";
import { toJson } from "../../api/fields/field.ts";
import type { ShownVerification } from "./fields.ts";
import { sourceFields } from "./fields.ts";
import { redactSettings } from "../../api/publishing/keptSettings.ts";
import { readUnkept } from "./rejections.ts";
import type { RouteContext } from "../../api/route/route.ts";
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
const sourceJson = (
  source: WebhookSource,
  { store, accepted }: Pick<RouteContext, "store"> & { accepted: number },
): Record<string, unknown> =>
  toJson(sourceFields, {
    ...{ source, accepted },
    settings: toSettings(redactSettings(source.headers)),
    verification: readVerification(source),
    rejected: source.rejected + readUnkept(store, source.id),
  });

/** Returns how a source verifies calls, without the secrets. */
function readVerification({ verification }: WebhookSource): ShownVerification | null {
  if (verification === null) return null;
  const { secret, ...shown } = verificationSchema.parse(verification);
  return { ...shown, secrets: typeof secret === "string" ? 1 : secret.length };
}
