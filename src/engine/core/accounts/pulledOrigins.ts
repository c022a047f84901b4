import type { Account } from "../model/account.ts";
import { Refusal } from "../values/errors.ts";
import { limits } from "../values/limits.ts";
import { parseUrl } from "../values/url.ts";

// Messages to a pulled origin are not sent. They pass the gates 1 to 4 like all others, and wait at gate 5,
// the delivery capacity, until a client pulls. It then holds the attempt as a receiver that acknowledges
// later (`engine/core/attempts/acknowledging.ts`).

/**
 * Returns an origin as it is stored, such as `https://worker.internal`. Throws `Refusal` if the text is not
 * one.
 */
export function normalizeOrigin(text: string): string {
  const url = text.length > limits.nameLength ? null : parseUrl(text);
  const isWeb = url?.protocol === "https:" || url?.protocol === "http:";
  const rest = url && `${url.username}${url.password}${url.pathname.slice(1)}${url.search}`;
  if (!url || !isWeb || rest !== "" || url.hostname.length > limits.hostLength || /[#?@*]/.test(text))
    throw new Refusal(
      "invalid",
      `origin: ${JSON.stringify(text.slice(0, 100))} is not an origin; ` +
        "use a scheme and a host, such as https://worker.internal",
    );
  return url.origin;
}

/**
 * Returns the origin with this host, which includes the port. Both schemes of a host are pulled together,
 * because they share the waitlist of the host.
 */
export const findOrigin = (origins: readonly string[], host: string): string | undefined =>
  origins.find((origin) => origin.endsWith(`//${host}`));

/** Returns the pulled origin of an account with this host. */
export const findPulledOrigin = ({ pulled }: Pick<Account, "pulled">, host: string): string | undefined =>
  pulled && findOrigin(pulled.origins, host);

/** Returns the host of a normalized origin. */
export const readOriginHost = (origin: string): string => origin.slice(origin.indexOf("//") + 2);
