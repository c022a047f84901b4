import { z } from "zod";
import { createEgress } from "../engine/delivery/http/egress.ts";
import type { ForwardProxy } from "../engine/delivery/http/tunnel.ts";
import { parseDuration } from "../engine/core/values/duration.ts";
import { planNames } from "../engine/core/accounts/plans.ts";
import type { PlanName } from "../engine/core/model/accountTerms.ts";
import { parseKeyRing } from "../engine/store/layout/keyRing.ts";

/** A whole number in a range. */
export const integer = (min: number, max: number) =>
  z.coerce
    .number({ error: "must be a number" })
    .int("must be a whole number")
    .min(min, `must be at least ${min}`)
    .max(max, `must be at most ${max}`);

/** A duration of at least `min` milliseconds. */
export const duration = (min: number) =>
  z.string().transform((text, context) => {
    const value = parseDuration(text);
    if (value !== null && value >= min) return value;
    context.addIssue({
      code: "custom",
      message: `must be a duration such as 30s, 12h or 7d, of at least ${min / 1000}s`,
    });
    return z.NEVER;
  });

/** A URL where clients reach the server. It is shown to people, so it has no password. */
export const publicUrl = z
  .string()
  .regex(
    /^$|^https?:\/\/[^/?#@\s]+(\/[^?#\s]*)?$/,
    "must be an http:// or https:// URL without a user or a query",
  )
  .transform((url) => url.replace(/\/+$/, ""));

/** A price in dollars. */
export const price = z.coerce
  .number({ error: "must be a number" })
  .min(0, "must be at least 0")
  .max(1_000_000, "must be at most 1000000");

/** Plans with their prices, such as `paid=10,fixed_1m=180`. */
export const planPrices = z.string().transform((text, context) => {
  const prices: Partial<Record<PlanName, number>> = {};
  for (const item of text.split(",").filter((piece) => piece.trim() !== "")) {
    const [name = "", priceText = ""] = item.split("=").map((piece) => piece.trim());
    const plan = planNames.find((one) => one === name);
    const { data: dollars } = price.safeParse(priceText === "" ? undefined : priceText);
    if (plan === undefined || dollars === undefined || prices[plan] !== undefined) {
      context.addIssue({
        code: "custom",
        message:
          `${JSON.stringify(item.slice(0, 100))} is not a plan and its price; ` +
          `use a value such as paid=10,fixed_1m=180, with each of ${planNames.join(", ")} at most once`,
      });
      return z.NEVER;
    }
    prices[plan] = dollars;
  }
  return prices;
});

const textList = z.string().transform((text) =>
  text
    .split(",")
    .map((item) => item.trim())
    .filter(Boolean),
);

/** A list of networks. */
export const networkList = textList.superRefine((allow, context) => {
  try {
    createEgress({ allow });
  } catch (error) {
    context.addIssue({ code: "custom", message: error instanceof Error ? error.message : String(error) });
  }
});

/**
 * Reports whether a text is an origin as browsers send it in the header `Origin`: without path and default
 * port.
 */
function isOrigin(text: string): boolean {
  if (/^https?:/i.test(text)) return URL.canParse(text) && new URL(text).origin === text;
  return /^[a-z][a-z0-9+.-]*:\/\/[\w.:-]+$/.test(text);
}

/** A list of origins, or * for all. */
export const originList = textList.superRefine((originTexts, context) => {
  const invalid = originTexts.find((one) => one !== "*" && !isOrigin(one));
  const problem =
    invalid !== undefined
      ? `${JSON.stringify(invalid.slice(0, 200))} is not an origin; ` +
        "use a value such as https://app.example.com, in lower case and without a path, or * for all"
      : originTexts.includes("*") && originTexts.length > 1
        ? "* allows every origin; remove the others"
        : null;
  if (problem !== null) context.addIssue({ code: "custom", message: problem });
});

/** A list of host names, without ports. They are compared in lower case. */
export const hostList = textList
  .transform((names) => names.map((name) => name.toLowerCase()))
  .superRefine((names, context) => {
    const invalid = names.find((name) => !/^[\w-]+(\.[\w-]+)*$/.test(name));
    if (invalid === undefined) return;
    const message =
      `${JSON.stringify(invalid.slice(0, 200))} is not a host name; ` +
      "use a value such as queue.example.com, without a port";
    context.addIssue({ code: "custom", message });
  });

/** Names that may be used instead of networks. */
const proxyNames = ["loopback", "linklocal", "uniquelocal"];

/** A list of networks and names of proxies. */
export const proxyList = textList.superRefine((proxyTexts, context) => {
  const everyone = proxyTexts.find((name) => /\/0+$/.test(name));
  if (everyone !== undefined)
    context.addIssue({
      code: "custom",
      message: `${JSON.stringify(everyone)} includes every address, so any client could claim any address`,
    });
  try {
    createEgress({ allow: proxyTexts.filter((name) => !proxyNames.includes(name)) });
  } catch (error) {
    context.addIssue({
      code: "custom",
      message: `${error instanceof Error ? error.message : String(error)}, or ${proxyNames.join(", ")}`,
    });
  }
});

/** The URL of a proxy, or an empty text for none. */
export const forwardProxy = z.string().transform((text, context): ForwardProxy | null => {
  if (text === "") return null;
  const url = URL.parse(text);
  const isUsable = url?.protocol === "http:" && `${url.pathname}${url.search}${url.hash}` === "/";
  if (url && isUsable)
    return {
      hostname: url.hostname.replace(/^\[|\]$/g, ""),
      port: Number(url.port || 80),
      authorization: url.username === "" ? null : formatProxyCredentials(url),
    };
  // The text may have a password, so the error does not repeat it.
  context.addIssue({
    code: "custom",
    message: "must be the URL of a proxy without a path, such as http://user:password@proxy.example:3128",
  });
  return z.NEVER;
});

const formatProxyCredentials = ({ username, password }: URL): string =>
  `Basic ${Buffer.from([username, password].map(decodeText).join(":")).toString("base64")}`;

function decodeText(encoded: string): string {
  try {
    return decodeURIComponent(encoded);
  } catch {
    return encoded;
  }
}

/** Encryption keys, or an empty text for none. */
export const keyRing = z.string().superRefine((keysText, context) => {
  try {
    if (keysText !== "") parseKeyRing(keysText, "the setting");
  } catch (error) {
    context.addIssue({ code: "custom", message: error instanceof Error ? error.message : String(error) });
  }
});

/** A port, or an empty text for none. */
export const portOrNone = z.union([z.literal("").transform(() => null), integer(0, 65535)], {
  error: "must be a whole number from 0 to 65535",
});

/** A folder, a URL or an address: text that is used as it is. */
export const text = z.string().min(1, "must not be empty");

/** The base address of a collector, or an empty text for none. */
export const otlpEndpoint = z.string().superRefine((endpoint, context) => {
  if (endpoint === "") return;
  const url = URL.parse(endpoint);
  const problem =
    !url || !/^https?:$/.test(url.protocol)
      ? "must be a URL such as http://127.0.0.1:4318"
      : url.username !== "" || url.password !== ""
        ? "must not contain credentials; put them into WAYPOST_OTLP_HEADERS"
        : url.search !== "" || url.hash !== ""
          ? "must not contain a query or a fragment; remove it"
          : null;
  if (problem !== null) context.addIssue({ code: "custom", message: problem });
});

const headerPattern = /^\s*([!#$%&'*+.^_`|~0-9A-Za-z-]{1,100})\s*=\s*(.{0,4000}?)\s*$/s;
const headerValuePattern = /^[\x20-\x7e]*$/;

/** Headers such as `api-key=secret,tenant=7`, with values in percent encoding. */
export const otlpHeaders = z.string().transform((headersText, context) => {
  const headers: [name: string, value: string][] = [];
  for (const item of headersText.split(",").filter((piece) => piece.trim() !== "")) {
    const [, name = "", given = ""] = headerPattern.exec(item) ?? [];
    const value = decodeValue(given);
    if (name === "" || value === null || !headerValuePattern.test(value)) {
      // The text is secret, so the message does not show it.
      context.addIssue({
        code: "custom",
        message: `header ${headers.length + 1} is not valid; use a value such as api-key=secret,tenant=7`,
      });
      return z.NEVER;
    }
    headers.push([name, value]);
  }
  return headers;
});

function decodeValue(given: string): string | null {
  try {
    return decodeURIComponent(given);
  } catch {
    return null;
  }
}
