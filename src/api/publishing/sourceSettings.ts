import { Refusal, toRefusal } from "../../engine/core/values/errors.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { HeaderList } from "../../engine/core/values/basics.ts";
import type { WebhookSource } from "../../engine/core/model/webhookSource.ts";
import { noBytes } from "../../engine/core/values/basics.ts";
import { findSendingRefusal } from "../../engine/core/limits/sendingLimits.ts";
import { pickBrand } from "../http/brand.ts";
import { listKeptSettings, readPublishRequest } from "./read.ts";
import type { Destination } from "./refusedHosts.ts";
import { listDestinations } from "./refusedHosts.ts";
import type { IncomingRequest, RouteContext } from "../route/route.ts";

/** Returns settings in the form in which the API shows them: a setting that occurs repeatedly has a list. */
export function toSettings(headers: HeaderList): Record<string, string | string[]> {
  const settings: Record<string, string | string[]> = {};
  for (const [name, value] of headers) {
    const before = settings[name];
    settings[name] =
      before === undefined ? value : [...(typeof before === "string" ? [before] : before), value];
  }
  return settings;
}

/**
 * Returns the settings with which a source publishes: its own settings, and `header-forward: true` unless
 * they set `header-forward`.
 */
export function readSourceDefaults(
  { headers }: Pick<WebhookSource, "headers">,
  { brand }: Pick<RouteContext, "brand">,
): HeaderList {
  const settings = listKeptSettings(headers);
  if (settings.some(({ name }) => name === "header-forward")) return headers;
  const prefix =
    pickBrand(
      settings.map((one) => one.brand),
      brand,
    ) === "svc"
      ? "Svc"
      : "Upstash";
  return [[`${prefix}-Header-Forward`, "true"], ...headers];
}

type SourceTarget = Pick<WebhookSource, "destination" | "headers"> & { owner: Account };

/**
 * Reads the settings of a source as a call to it would, and throws the same `Refusal`. The owner who sets an
 * invalid setting thus sees the refusal, and not the sender that calls. Returns the names of the unknown
 * settings of the other brand, and where a call would be delivered to.
 */
export async function checkSourceTarget(
  incoming: IncomingRequest,
  context: RouteContext,
  sourceTarget: SourceTarget,
): Promise<{ ignored: string[]; destinations: Destination[] }> {
  const query = { token: null, tokenName: null, settings: [], rest: null };
  const empty = { ...incoming, query, rawHeaders: [], body: noBytes, proof: null };
  const { input, ignored, group } = await readPublishRequest(empty, {
    destination: sourceTarget.destination,
    account: sourceTarget.owner.id,
    store: context.store,
    defaults: readSourceDefaults(sourceTarget, context),
  });
  const deduplicationSetting = listKeptSettings(sourceTarget.headers).find(
    ({ name }) => name === "deduplication-id",
  );
  if (deduplicationSetting)
    throw new Refusal(
      "invalid",
      `settings: ${deduplicationSetting.writtenName} would make every call after the first a duplicate; ` +
        "remove it, since the sender's event id identifies each call",
    );
  const refusal = findSendingRefusal(sourceTarget.owner, input, context.now());
  if (refusal) throw toRefusal({ ...refusal, message: `settings: ${refusal.message}` });
  const endpoints = group?.endpoints.map(({ url }) => url) ?? [];
  return { ignored, destinations: listDestinations(input, endpoints) };
}
