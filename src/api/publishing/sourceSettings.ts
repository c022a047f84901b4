import { Refusal } from "../../core/values/errors.ts";
import type { Account, HeaderList, Source } from "../../core/model/message.ts";
import { noBytes } from "../../core/model/message.ts";
import { sendingLimitBrokenBy } from "../../core/commands/publish.ts";
import { brandShown } from "../http/brand.ts";
import { shownSettings } from "./keptSettings.ts";
import { givenBy, readPosting } from "./read.ts";
import type { Incoming, Parts } from "../route/route.ts";

/** The settings of a list of headers, to be shown. What its `redact-fields` hide is not. */
export function settingsOf(headers: HeaderList): Record<string, string | string[]> {
  const settings: Record<string, string | string[]> = {};
  for (const [name, value] of shownSettings(headers)) {
    const before = settings[name];
    settings[name] = before === undefined ? value : [...(typeof before === "string" ? [before] : before), value];
  }
  return settings;
}

/** What a source publishes with: its settings, and the headers of its calls unless it says otherwise. */
export function defaultsOf({ headers }: Pick<Source, "headers">, { brand }: Pick<Parts, "brand">): HeaderList {
  const given = givenBy(headers);
  if (given.some(({ name }) => name === "header-forward")) return headers;
  const prefix =
    brandShown(
      given.map((one) => one.brand),
      brand,
    ) === "svc"
      ? "Svc"
      : "Upstash";
  return [[`${prefix}-Header-Forward`, "true"], ...headers];
}

type Aim = Pick<Source, "destination" | "headers"> & { owner: Account };

/**
 * Reads the settings of a source as if a call had come, so that what cannot be published is refused while its owner is
 * there to see it. Answers the settings of the other brand that are unknown. Throws `Refusal`.
 */
export async function checkAim(incoming: Incoming, parts: Parts, aim: Aim): Promise<string[]> {
  const query = { token: null, tokenName: null, settings: [], rest: null };
  const empty = { ...incoming, query, rawHeaders: [], body: noBytes, proof: null };
  const { letter, ignored } = await readPosting(empty, {
    destination: aim.destination,
    account: aim.owner.id,
    store: parts.store,
    defaults: defaultsOf(aim, parts),
  });
  const once = givenBy(aim.headers).find(({ name }) => name === "deduplication-id");
  if (once)
    throw new Refusal(
      "invalid",
      `settings: ${once.written} would make all calls one message; each call is known by the sender's id of its event`,
    );
  const refusal = sendingLimitBrokenBy(aim.owner, letter, parts.now());
  if (refusal) throw new Refusal(refusal.refused, `settings: ${refusal.message}`);
  return ignored;
}
