import type { AccountId, HeaderList, Millis } from "../values/basics.ts";

/**
 * A named set of endpoints. `headers` are the default headers of every request to the group, as they were
 * given.
 */
export type UrlGroup = {
  account: AccountId;
  name: string;
  createdAt: Millis;
  updatedAt: Millis;
  endpoints: readonly Endpoint[];
  headers: HeaderList;
  damaged?: true;
};

/** One URL of a URL group, and its name in the group if it has one. */
export type Endpoint = { name: string | null; url: string };
