import type { AccountId } from "../values/basics.ts";

/**
 * An entry of a search index: either a row has a property by which lists are searched, or a URL or a similar
 * key occurred in a period of time. See `engine/core/search/tags.ts` and `engine/core/search/timeIndex.ts`.
 */
export type Tag = { account: AccountId; id: string };

/** The keys of the time index for everything that is recorded about a message: words separated by spaces. */
export type TimeKeys = string;
