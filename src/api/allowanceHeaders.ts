import type { Allowance } from "../core/errors.ts";
import type { PublishResult } from "../core/publish.ts";

/** What is left of the requests of a day (protocol 1.4). The reset is a time in unix seconds. */
export const allowanceHeaders = ({ limit, remaining, resetAt }: Allowance): Record<string, string> => ({
  "RateLimit-Limit": String(limit),
  "RateLimit-Remaining": String(remaining),
  "RateLimit-Reset": String(Math.floor(resetAt / 1000)),
});

/** The same for the answer to a publish, with a warning where a soft limit is passed. Empty where nothing is limited. */
export function headersOfResults(results: readonly PublishResult[]): Record<string, string> {
  // One that the token may not publish was not looked at any further.
  const allowance = results.findLast((result) => result.allowance)?.allowance;
  if (!allowance) return {};
  return {
    ...allowanceHeaders(allowance),
    ...(allowance.warning === undefined ? {} : { "Waypost-Warning": allowance.warning.replaceAll(/[^\x20-\x7e]/g, "?") }),
  };
}
