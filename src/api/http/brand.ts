import { brandNames } from "../../core/values/brand.ts";
import type { Brand } from "../../core/model/message.ts";
import { canonicalName } from "../../core/values/headers.ts";
import { memoize } from "../../core/values/memoize.ts";

/** What a name says once its brand is taken off: `upstash-retries` is `retries` under the brand `upstash`. */
export type BrandedName = { brand: Brand; name: string };

const brands: readonly Brand[] = ["svc", "upstash"];

const prefixes = brands.map((brand) => ({ brand, prefix: `${brandNames[brand].prefix.toLowerCase()}-` }));

/** Takes the brand off a name in lower case. Null: the name belongs to the caller. */
export function parseBrandedName(name: string): BrandedName | null {
  for (const { brand, prefix } of prefixes) if (name.startsWith(prefix)) return { brand, name: name.slice(prefix.length) };
  return null;
}

/** The same for the name of a header, in any case. */
export const parseBrandedHeader = memoize((name) => parseBrandedName(name.toLowerCase()));

/** The name of a header as people write it: some settings have a capital letter within a word. */
export const formatHeaderName = (name: string): string =>
  canonicalName(name)
    .replace(/-Runid$/, "-RunId")
    .replace(/-Calltype$/, "-CallType");

/** The brand whose token parameter this is, if it is one. */
export const findTokenBrand = (name: string): Brand | null => brands.find((brand) => brandNames[brand].queryToken === name) ?? null;

/** The brand of a request that shows these: the other one only when it is shown and the own one is not. */
export const pickBrand = (shown: readonly Brand[], fallback: Brand = "svc"): Brand =>
  shown.includes("svc") ? "svc" : shown.includes("upstash") ? "upstash" : fallback;
