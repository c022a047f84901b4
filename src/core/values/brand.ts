import type { Brand } from "./basics.ts";

/** Prefix of header names, issuer of signatures, name of the caller, name of the token in a query string. */
type BrandNames = { prefix: "Svc" | "Upstash"; issuer: string; userAgent: string; queryToken: "svc_token" | "qstash_token" };

/** The names under which each brand speaks. Everything else knows settings by their plain names only. */
export const brandNames: Record<Brand, BrandNames> = {
  svc: { prefix: "Svc", issuer: "Svc", userAgent: "Svc-Queue", queryToken: "svc_token" },
  upstash: { prefix: "Upstash", issuer: "Upstash", userAgent: "Upstash-QStash", queryToken: "qstash_token" },
};
