import { Refusal } from "../../core/values/errors.ts";
import type { Account, HeaderList, WebhookSource } from "../../core/model/message.ts";
import { noBytes } from "../../core/model/message.ts";
import { findSendingRefusal } from "../../core/commands/publish.ts";
import { pickBrand } from "../http/brand.ts";
import { redactSettings } from "./keptSettings.ts";
import { listKeptSettings, readPublishRequest } from "./read.ts";
import type { IncomingRequest, RouteContext } from "../route/route.ts";

/** The settings of a list of headers, to be shown. What its `redact-fields` hide is not. */
export function toSettings(headers: HeaderList): Record<string, string | string[]> {
  const settings: Record<string, string | string[]> = {};
  for (const [name, value] of redactSettings(headers)) {
    const before = settings[name];
    settings[name] = before === undefined ? value : [...(typeof before === "string" ? [before] : before), value];
  }
  return settings;
}

/** What a source publishes with: its settings, and the headers of its calls unless it says otherwise. */
export function readSourceDefaults({ headers }: Pick<WebhookSource, "headers">, { brand }: Pick<RouteContext, "brand">): HeaderList {
  const given = listKeptSettings(headers);
  if (given.some(({ name }) => name === "header-forward")) return headers;
  const prefix =
    pickBrand(
      given.map((one) => one.brand),
      brand,
    ) === "svc"
      ? "Svc"
      : "Upstash";
  return [[`${prefix}-Header-Forward`, "true"], ...headers];
}

type SourceTarget = Pick<WebhookSource, "destination" | "headers"> & { owner: Account };

/**
 * Reads the settings of a source as if a call had come, so that what cannot be published is refused while its owner is
 * there to see it. Answers the settings of the other brand that are unknown. Throws `Refusal`.
 */
export async function checkSourceTarget(incoming: IncomingRequest, context: RouteContext, sourceTarget: SourceTarget): Promise<string[]> {
  const query = { token: null, tokenName: null, settings: [], rest: null };
  const empty = { ...incoming, query, rawHeaders: [], body: noBytes, proof: null };
  const { input, ignored } = await readPublishRequest(empty, {
    destination: sourceTarget.destination,
    account: sourceTarget.owner.id,
    store: context.store,
    defaults: readSourceDefaults(sourceTarget, context),
  });
  const deduplicationSetting = listKeptSettings(sourceTarget.headers).find(({ name }) => name === "deduplication-id");
  if (deduplicationSetting)
    throw new Refusal(
      "invalid",
      `settings: ${deduplicationSetting.written} would make all calls one message; each call is known by the sender's id of its event`,
    );
  const refusal = findSendingRefusal(sourceTarget.owner, input, context.now());
  if (refusal) throw new Refusal(refusal.refused, `settings: ${refusal.message}`);
  return ignored;
}
