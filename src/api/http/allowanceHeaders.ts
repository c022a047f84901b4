import type { Allowance } from "../../core/values/errors.ts";
import type { PublishResult } from "../../core/commands/publish.ts";
import { warningHeader } from "./warnings.ts";

/** What is left of the requests of a day (protocol 1.4). The reset is a time in unix seconds. */
export const allowanceHeaders = ({ limit, remaining, resetAt }: Allowance): Record<string, string> => ({
  "RateLimit-Limit": String(limit),
  "RateLimit-Remaining": String(remaining),
  "RateLimit-Reset": String(Math.floor(resetAt / 1000)),
});

/** Returns the headers for the answer to a publish: the allowance if there is a limit, and warnings of it and of `others`. */
export function headersOfResults(results: readonly PublishResult[], others: readonly string[]): Record<string, string> {
  // One that the token may not publish was not looked at any further.
  const allowance = results.findLast((result) => result.allowance)?.allowance;
  const warnings = allowance?.warning === undefined ? others : [allowance.warning, ...others];
  return { ...(allowance && allowanceHeaders(allowance)), ...warningHeader(warnings) };
}
