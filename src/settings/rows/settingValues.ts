import { z } from "zod";
import { assertNetworks, createEgress } from "../../engine/delivery/http/egress.ts";
import type { ForwardProxy } from "../../engine/delivery/http/tunnel.ts";
import { formatDuration, parseDuration } from "../../engine/core/values/duration.ts";
import { parseAccountId, parsePassword } from "../../api/auth/token.ts";
import { planNames } from "../../engine/core/accounts/plans.ts";
import type { PlanName } from "../../engine/core/model/accountTerms.ts";
import { parseKeyRing } from "../../engine/store/layout/keyRing.ts";

// A reader describes the values that it accepts. The help, errors and docs/configuration.md use this text.

/** A whole number in a range. */
export const integer = (min: number, max: number) => {
  const values = `a whole number from ${min} to ${max}`;
  const error = `must be ${values}`;
  return z.coerce.number({ error }).int(error).min(min, error).max(max, error).describe(values);
};

/** One of several words. */
export const oneOf = <const W extends readonly string[]>(...words: W) => {
  const values = listWords(words);
  return z.enum(words, { error: `must be ${values}` }).describe(values);
};

const listWords = (words: readonly string[]): string =>
  `${words.slice(0, -1).join(", ")} or ${words.at(-1) ?? ""}`;

/** A switch: on or off. */
export const onOff = oneOf("on", "off")
  .transform((word) => word === "on")
  .describe("on or off");

/** A string that matches a pattern. */
export const pattern = (regex: RegExp, values: string) =>
  z.string().regex(regex, `must be ${values}`).describe(values);

/** A duration of at least `min` milliseconds. */
export const duration = (min: number) => {
  const values = `a duration such as 30s, 12h or 7d, of at least ${formatDuration(min)}`;
  return z
    .string()
    .transform((text, context) => {
      const value = parseDuration(text);
      if (value !== null && value >= min) return value;
      context.addIssue({ code: "custom", message: `must be ${values}` });
      return z.NEVER;
    })
    .describe(values);
};

/** A URL where clients reach the server. It is shown to people, so it has no password. */
export const publicUrl = pattern(
  /^$|^https?:\/\/[^/?#@\s]+(\/[^?#\s]*)?$/,
  "an http:// or https:// URL without a user or a query",
)
  .transform((url) => url.replace(/\/+$/, ""))
  .describe("an http:// or https:// URL without a user or a query");

const priceValues = "a number from 0 to 1000000";
const priceError = `must be ${priceValues}`;
/** A price in dollars. */
export const price = z.coerce
  .number({ error: priceError })
  .min(0, priceError)
  .max(1_000_000, priceError)
  .describe(priceValues);

/** Plans with their prices, such as `paid=10,fixed_1m=180`. */
export const planPrices = z
  .string()
  .transform((text, context) => {
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
  })
  .describe("plans with prices in dollars, separated by commas");

const textList = z.string().transform((text) =>
  text
    .split(",")
    .map((item) => item.trim())
    .filter(Boolean),
);

/** A list whose texts `assert` accepts. It throws an Error for others. */
const checkedList = (assert: (texts: readonly string[]) => unknown) =>
  textList.superRefine((texts, context) => {
    try {
      assert(texts);
    } catch (error) {
      context.addIssue({ code: "custom", message: error instanceof Error ? error.message : String(error) });
    }
  });

/** A list of networks. */
export const networkList = checkedList(assertNetworks).describe(
  "addresses and networks, separated by commas",
);

/** A list of destinations that may have private addresses. */
export const destinationList = checkedList((allow) => createEgress({ allow })).describe(
  "addresses, networks and names, separated by commas; *. before a name means all names below it",
);

/**
 * Reports whether a string is an origin as browsers send it in the header `Origin`: without path and default
 * port.
 */
function isOrigin(text: string): boolean {
  if (/^https?:/i.test(text)) return URL.canParse(text) && new URL(text).origin === text;
  return /^[a-z][a-z0-9+.-]*:\/\/[\w.:-]+$/.test(text);
}

/** A list of origins, or * for all. */
export const originList = textList
  .superRefine((originTexts, context) => {
    const invalid = originTexts.find((one) => one !== "*" && !isOrigin(one));
    const problem =
      invalid !== undefined
        ? `${JSON.stringify(invalid.slice(0, 200))} is not an origin; ` +
          "use a value such as https://app.example.com, in lower case and without a path, or * for all"
        : originTexts.includes("*") && originTexts.length > 1
          ? "* allows every origin; remove the others"
          : null;
    if (problem !== null) context.addIssue({ code: "custom", message: problem });
  })
  .describe("origins, separated by commas, or * for all");

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
  })
  .describe("host names without ports, separated by commas");

/** Names that may be used instead of networks. */
const proxyNames = ["loopback", "linklocal", "uniquelocal"];

/** A list of networks and names of proxies. */
export const proxyList = textList
  .superRefine((proxyTexts, context) => {
    const everyone = proxyTexts.find((name) => /\/0+$/.test(name));
    if (everyone !== undefined)
      context.addIssue({
        code: "custom",
        message: `${JSON.stringify(everyone)} includes every address, so any client could claim any address`,
      });
    try {
      assertNetworks(proxyTexts.filter((name) => !proxyNames.includes(name)));
    } catch (error) {
      context.addIssue({
        code: "custom",
        message: `${error instanceof Error ? error.message : String(error)}, or ${proxyNames.join(", ")}`,
      });
    }
  })
  .describe("addresses and networks, loopback, linklocal or uniquelocal, separated by commas");

/** The URL of a proxy, or an empty text for none. */
export const forwardProxy = z
  .string()
  .transform((text, context): ForwardProxy | null => {
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
  })
  .describe("the http:// URL of a proxy, without a path");

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
export const keyRing = z
  .string()
  .superRefine((keysText, context) => {
    try {
      if (keysText !== "") parseKeyRing(keysText, "the setting");
    } catch (error) {
      context.addIssue({ code: "custom", message: error instanceof Error ? error.message : String(error) });
    }
  })
  .describe("keys, separated by commas");

/** The shortest password in the token of an account. */
const shortestTokenPassword = 16;
const ownerTokenValues =
  "a token as printed by waypost credentials --new, " +
  `with a password of at least ${shortestTokenPassword} characters`;

/** The token of an account, or an empty text for none. The error does not repeat it, because it is secret. */
export const ownerToken = z
  .string()
  .refine(
    (token) =>
      token === "" ||
      (/^[\w+/-]+=*$/.test(token) &&
        parseAccountId(token) !== null &&
        (parsePassword(token) ?? "").length >= shortestTokenPassword),
    `must be ${ownerTokenValues}`,
  )
  .describe(ownerTokenValues);

/** A signing key, or an empty text for none. */
export const signingKey = pattern(
  /^([\x21-\x7e]{16,200})?$/,
  "a key of 16 to 200 printable characters, without spaces",
);

/** A port, or an empty text for none. */
export const portOrNone = z
  .union([z.literal("").transform(() => null), integer(0, 65535)], {
    error: "must be a whole number from 0 to 65535",
  })
  .describe("a whole number from 0 to 65535");

/** A region, in lower or upper case. */
export const region = z
  .string()
  .toUpperCase()
  .pipe(z.enum(["EU-CENTRAL-1", "US-EAST-1"], { error: "must be eu-central-1 or us-east-1" }))
  .describe("eu-central-1 or us-east-1");

/** The path of a folder or a file, or an empty text for none. */
export const path = (of: "file" | "folder") => z.string().describe(`the path of a ${of}`);

/** The path of a folder that the server needs. */
export const requiredFolder = z.string().min(1, "must not be empty").describe("the path of a folder");

/** An address to listen on. */
export const listenAddress = z.string().min(1, "must not be empty").describe("an IP address or a host name");

/** The base address of a collector, or an empty text for none. */
export const otlpEndpoint = z
  .string()
  .superRefine((endpoint, context) => {
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
  })
  .describe("an http:// or https:// URL without credentials and without a query");

const headerPattern = /^\s*([!#$%&'*+.^_`|~0-9A-Za-z-]{1,100})\s*=\s*(.{0,4000}?)\s*$/s;
const headerValuePattern = /^[\x20-\x7e]*$/;

/** Headers such as `api-key=secret,tenant=7`, with values in percent encoding. */
export const otlpHeaders = z
  .string()
  .transform((headersText, context) => {
    const headers: [name: string, value: string][] = [];
    for (const item of headersText.split(",").filter((piece) => piece.trim() !== "")) {
      const [, name = "", encoded = ""] = headerPattern.exec(item) ?? [];
      const value = decodeValue(encoded);
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
  })
  .describe("names with values in percent encoding, separated by commas");

function decodeValue(encoded: string): string | null {
  try {
    return decodeURIComponent(encoded);
  } catch {
    return null;
  }
}
