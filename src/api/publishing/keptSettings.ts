import { Refusal } from "../../engine/core/values/errors.ts";
import { limits } from "../../engine/core/values/limits.ts";
import type { HeaderList } from "../../engine/core/values/basics.ts";
import type { Redaction } from "../../engine/core/model/sendSettings.ts";
import { canonicalName } from "../../engine/core/values/headers.ts";
import { redactHeaders } from "../../engine/core/model/redaction.ts";
import { parseBrandedName } from "../http/brand.ts";
import type { MessageSettings } from "../settings/grammar.ts";
import { readSettings } from "../settings/grammar.ts";
import { listKeptSettings } from "./read.ts";
import { sha256 } from "../http/sha256.ts";

// URL groups and sources keep settings for messages that are published later. The settings are kept as
// headers, as the caller gave them.

/** Settings as the caller gave them: names of headers, each with a value or a list of values. */
export type KeptSettings = Readonly<Record<string, string | readonly string[]>>;

/**
 * Returns settings as a list of headers. Throws `Refusal` if a name is not a setting, if a value is redacted,
 * or if the settings have more than `limits.headerBytes` characters in total. The refusal names `field`.
 */
export function toSettingHeaders(field: string, settings: KeptSettings): HeaderList {
  const headers = Object.entries(settings).flatMap(([name, values]) =>
    (typeof values === "string" ? [values] : values).map((value) => [name, value.trim()] as const),
  );
  for (const name of Object.keys(settings)) {
    if (parseBrandedName(name.toLowerCase())) continue;
    const shown = name.slice(0, 200);
    throw new Refusal(
      "invalid",
      `${field}.${shown}: not a setting; use Svc-Forward-${shown || "…"} to deliver a header`,
    );
  }
  for (const [name, value] of headers) {
    // A caller that reads the settings and writes them back must not replace a value with its redaction.
    if (/^REDACTED:[0-9a-f]{64}$/.test(value))
      throw new Refusal(
        "invalid",
        `${field}.${name.slice(0, 200)}: a redacted value cannot be stored; give the original value`,
      );
  }
  const length = headers.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
  if (length <= limits.headerBytes) return headers;
  throw new Refusal(
    "limit-exceeded",
    `${field}: ${length} characters of names and values, the limit is ${limits.headerBytes}`,
  );
}

/**
 * Returns settings as the API shows them: redacted by the setting `redact-fields` among them, which also
 * applies to the forwarded headers of callbacks.
 */
export const redactSettings = (headers: HeaderList): HeaderList =>
  redactForwarded(headers, readRedaction(headers));

/** Returns settings with the values of their forwarded headers redacted. */
export const redactForwarded = (headers: HeaderList, redaction: Redaction | null): HeaderList =>
  headers.map(([name, value]) => {
    const [, forwardedName] = /^(?:svc|upstash)-(?:(?:failure-)?callback-)*forward-(.*)$/i.exec(name) ?? [];
    const [shown] =
      forwardedName === undefined
        ? []
        : redactHeaders([[canonicalName(forwardedName), value]], redaction, sha256);
    return [name, shown?.[1] ?? value];
  });

/** Returns the redaction that settings ask for, or null. */
export const readRedaction = (headers: HeaderList): Redaction | null =>
  readSettings(listKeptSettings(headers.filter(([name]) => /-redact-fields$/i.test(name))), []).settings
    .values["redact-fields"] ?? null;

/**
 * Returns the URLs of the callbacks in settings, and of the callbacks of these callbacks. Throws `Refusal`
 * for malformed settings.
 */
export const listCallbackUrls = (headers: HeaderList): string[] =>
  listUrls(readSettings(listKeptSettings(headers)).settings);

const listUrls = ({ values, callback, failureCallback }: MessageSettings): string[] => [
  ...[values.callback, values["failure-callback"]].filter((url) => url !== undefined),
  ...[callback, failureCallback].flatMap((one) => (one ? listUrls(one) : [])),
];
