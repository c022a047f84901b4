import { brandNames } from "../../engine/core/values/brand.ts";
import type { Brand } from "../../engine/core/values/basics.ts";
import { canonicalName } from "../../engine/core/values/headers.ts";
import { memoize } from "../../engine/core/caches/memoize.ts";

/** A name without its brand: `upstash-retries` is `retries` under the brand `upstash`. */
export type BrandedName = { brand: Brand; name: string };

const brands: readonly Brand[] = ["svc", "upstash"];

const prefixes = brands.map((brand) => ({ brand, prefix: `${brandNames[brand].prefix.toLowerCase()}-` }));

/**
 * Removes the brand from a name in lower case. Returns null if the name has no brand and belongs to the
 * caller.
 */
export function parseBrandedName(name: string): BrandedName | null {
  for (const { brand, prefix } of prefixes)
    if (name.startsWith(prefix)) return { brand, name: name.slice(prefix.length) };
  return null;
}

/**
 * Removes the brand from the name of a header in any case. Returns null if the name belongs to the caller.
 */
export const parseBrandedHeader = memoize((name) => parseBrandedName(name.toLowerCase()));

/**
 * Returns the name of a header in its usual form. The names of some settings have a capital within a word.
 */
export const formatHeaderName = (name: string): string =>
  canonicalName(name)
    .replace(/-Runid$/, "-RunId")
    .replace(/-Calltype$/, "-CallType");

/** Returns the brand whose token parameter has this name, or null. */
export const findTokenBrand = (name: string): Brand | null =>
  brands.find((brand) => brandNames[brand].queryToken === name) ?? null;

/**
 * Returns the brand of a request that shows these brands: `svc` if it shows that, otherwise `upstash` if it
 * shows that, otherwise the fallback.
 */
export const pickBrand = (shown: readonly Brand[], fallback: Brand = "svc"): Brand =>
  shown.includes("svc") ? "svc" : shown.includes("upstash") ? "upstash" : fallback;
