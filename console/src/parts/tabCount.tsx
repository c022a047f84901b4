import type { UseQueryResult } from "@tanstack/react-query";
import type { Response } from "../api/client.ts";
import { useRead } from "../api/queries.ts";
import { useMay } from "../api/session.ts";
import { formatCount } from "./words.ts";

/** Returns the counts of the account, whatever the filters of a page are. */
export function useCounts(): UseQueryResult<Response<"GET /v2/overview">> {
  return useRead("GET /v2/overview", {}, { enabled: useMay().read, keep: false });
}

/**
 * Returns the class of tabs with counts. They are shown once the counts are read or cannot be read, so that
 * nothing moves.
 */
export const tabsClass = (name: string, { isLoading }: { isLoading: boolean }): string =>
  isLoading ? `${name} unread` : name;

/** A number of entries that was counted up to a bound. `more`: there are more. */
type Counted = { count: number; more?: boolean | undefined };

/** The count on a tab: of all entries of the account. */
export const TabCount = ({ of }: { of: Counted | undefined }) => (
  <span className="n">{of && `${formatCount(of.count)}${of.more ? "+" : ""}`}</span>
);
