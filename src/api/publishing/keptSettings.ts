import { Refusal } from "../../core/values/errors.ts";
import { limits } from "../../core/values/limits.ts";
import type { HeaderList, Redaction } from "../../core/model/message.ts";
import { canonicalName } from "../../core/values/headers.ts";
import { redactHeaders } from "../../core/model/redaction.ts";
import { parseBrandedName } from "../http/brand.ts";
import type { MessageSettings } from "../settings/grammar.ts";
import { readSettings } from "../settings/grammar.ts";
import { listKeptSettings } from "./read.ts";
import { sha256 } from "../http/sha256.ts";

// URL groups and sources keep settings for what is published later. They are kept as headers, as they were given.

/** Settings as they are given: names of headers, with one value or several. */
export type KeptSettings = Readonly<Record<string, string | readonly string[]>>;

/** Settings as a list of headers. Throws `Refusal`, with the `field` that has them, for a name that is no setting, and when they are too long. */
export function toSettingHeaders(field: string, settings: KeptSettings): HeaderList {
  const headers = Object.entries(settings).flatMap(([name, values]) =>
    (typeof values === "string" ? [values] : values).map((value) => [name, value.trim()] as const),
  );
  for (const name of Object.keys(settings)) {
    if (parseBrandedName(name.toLowerCase())) continue;
    const shown = name.slice(0, 200);
    throw new Refusal("invalid", `${field}.${shown}: is no setting; Svc-Forward-${shown || "…"} has a header delivered`);
  }
  for (const [name, value] of headers) {
    // What is not shown cannot be given back: it would replace what it stands for.
    if (/^REDACTED:[0-9a-f]{64}$/.test(value))
      throw new Refusal("invalid", `${field}.${name.slice(0, 200)}: is what is shown instead of a value; give the value itself`);
  }
  const length = headers.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
  if (length <= limits.headerBytes) return headers;
  throw new Refusal("limit-exceeded", `${field}: ${length} characters of names and values, the limit is ${limits.headerBytes}`);
}

/** Settings to be shown: what their own `redact-fields` hide is hidden, those for callbacks included. */
export const redactSettings = (headers: HeaderList): HeaderList => redactForwarded(headers, readRedaction(headers));

/** Settings with the values hidden of what they forward. */
export const redactForwarded = (headers: HeaderList, redaction: Redaction | null): HeaderList =>
  headers.map(([name, value]) => {
    const [, forwardedName] = /^(?:svc|upstash)-(?:(?:failure-)?callback-)*forward-(.*)$/i.exec(name) ?? [];
    const [shown] = forwardedName === undefined ? [] : redactHeaders([[canonicalName(forwardedName), value]], redaction, sha256);
    return [name, shown?.[1] ?? value];
  });

/** What settings hide from every answer. */
export const readRedaction = (headers: HeaderList): Redaction | null =>
  readSettings(listKeptSettings(headers.filter(([name]) => /-redact-fields$/i.test(name))), []).settings.values["redact-fields"] ?? null;

/** The URLs of callbacks that settings name, and of theirs. Throws `Refusal` for settings that cannot be read. */
export const listCallbackUrls = (headers: HeaderList): string[] => listUrls(readSettings(listKeptSettings(headers)).settings);

const listUrls = ({ values, callback, failureCallback }: MessageSettings): string[] => [
  ...[values.callback, values["failure-callback"]].filter((url) => url !== undefined),
  ...[callback, failureCallback].flatMap((one) => (one ? listUrls(one) : [])),
];
