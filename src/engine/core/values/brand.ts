import type { Brand } from "./basics.ts";

/** The product in one line, which the help, the API document and the package share. */
export const tagline = "Self-hosted HTTP message queue and durable workflow runner";

/**
 * The prefix of header names, the issuer of signatures, the user agent, and the name of the token in a query
 * string.
 */
type BrandNames = {
  prefix: "Svc" | "Upstash";
  issuer: string;
  userAgent: string;
  queryToken: "svc_token" | "qstash_token";
};

/** The names that each brand uses. All other code knows settings by their plain names only. */
export const brandNames: Record<Brand, BrandNames> = {
  svc: { prefix: "Svc", issuer: "Svc", userAgent: "Svc-Queue", queryToken: "svc_token" },
  upstash: { prefix: "Upstash", issuer: "Upstash", userAgent: "Upstash-QStash", queryToken: "qstash_token" },
};
