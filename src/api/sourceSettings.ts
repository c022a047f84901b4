import { hash } from "node:crypto";
import { Refusal } from "../core/errors.ts";
import { limits } from "../core/limits.ts";
import type { AccountId, HeaderList, Redaction, Source } from "../core/message.ts";
import { canonicalName, noBytes } from "../core/message.ts";
import { sendingLimitBrokenBy } from "../core/publish.ts";
import type { Hash } from "../core/redaction.ts";
import { redactHeaders } from "../core/redaction.ts";
import { brandedName, brandShown } from "./brand.ts";
import { readSettings } from "./given.ts";
import { givenBy, readPosting } from "./posting.ts";
import type { Incoming, Parts } from "./route.ts";

/** Settings as they are given and shown: names of headers, with one value or several. */
export type SettingsGiven = Readonly<Record<string, string | readonly string[]>>;

/** The settings of a source, as a list of headers. Throws `Refusal` for a name that is no setting. */
export function headersOf(settings: SettingsGiven): HeaderList {
  const headers = Object.entries(settings).flatMap(([name, values]) =>
    (typeof values === "string" ? [values] : values).map((value) => [name, value] as const),
  );
  for (const [name, value] of headers) {
    const shown = name.slice(0, 200);
    if (!brandedName(name.toLowerCase()))
      throw new Refusal(
        "invalid",
        `settings: ${shown} is no setting; names begin with Svc-, as in Svc-Retries or Svc-Forward-Authorization`,
      );
    // What is not shown cannot be given back: it would replace what it stands for.
    if (/^REDACTED:[0-9a-f]{64}$/.test(value))
      throw new Refusal("invalid", `settings: ${shown} has what is shown instead of its value; give the value itself`);
  }
  const size = headers.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
  if (size > limits.headerBytes) throw new Refusal("invalid", `settings: ${size} characters, of which the limit is ${limits.headerBytes}`);
  return headers;
}

/** The settings of a list of headers, to be shown. What its `redact-fields` hide is not. */
export function settingsOf(headers: HeaderList): Record<string, string | string[]> {
  const settings: Record<string, string | string[]> = {};
  for (const [name, value] of hidden(headers)) {
    const before = settings[name];
    settings[name] = before === undefined ? value : [...(typeof before === "string" ? [before] : before), value];
  }
  return settings;
}

function hidden(headers: HeaderList): HeaderList {
  const redaction = redactionOf(headers);
  return headers.map(([name, value]) => {
    const [, of] = /^(?:svc|upstash)-(?:(?:failure-)?callback-)*forward-(.*)$/i.exec(name) ?? [];
    const [shown] = of === undefined ? [] : redactHeaders([[canonicalName(of), value]], redaction, sha256);
    return [name, shown?.[1] ?? value];
  });
}

const sha256: Hash = (value) => hash("sha256", value, "hex");

/** What the settings of a source hide from every answer. */
export const redactionOf = (headers: HeaderList): Redaction | null =>
  readSettings(givenBy(headers.filter(([name]) => /-redact-fields$/i.test(name))), []).settings.values["redact-fields"] ?? null;

/** What a source publishes with: its settings, and the headers of its calls unless it says otherwise. */
export function defaultsOf({ headers }: Pick<Source, "headers">): HeaderList {
  const given = givenBy(headers);
  if (given.some(({ name }) => name === "header-forward")) return headers;
  const prefix = brandShown(given.map(({ brand }) => brand)) === "svc" ? "Svc" : "Upstash";
  return [[`${prefix}-Header-Forward`, "true"], ...headers];
}

type Aim = Pick<Source, "destination" | "headers"> & { account: AccountId };

/**
 * Reads the settings of a source as if a call had come, so that what cannot be published is refused while its owner is
 * there to see it. Answers the settings of the other brand that are unknown. Throws `Refusal`.
 */
export async function checkAim(incoming: Incoming, { store, now }: Parts, aim: Aim): Promise<string[]> {
  const query = { token: null, tokenName: null, settings: [], rest: null };
  const empty = { ...incoming, query, rawHeaders: [], body: noBytes, proof: null };
  const { letter, ignored } = await readPosting(empty, { ...aim, store, defaults: defaultsOf(aim) });
  const once = givenBy(aim.headers).find(({ name }) => name === "deduplication-id");
  if (once)
    throw new Refusal(
      "invalid",
      `settings: ${once.written} would make all calls one message; each call is known by the sender's id of its event`,
    );
  const refusal = sendingLimitBrokenBy(letter, now());
  if (refusal) throw new Refusal(refusal.refused, `settings: ${refusal.message}`);
  return ignored;
}
