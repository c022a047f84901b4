import { randomBytes } from "node:crypto";

/** The name of the header with the id of a request. */
export const requestIdHeader = "X-Request-Id";

/** Ids of other forms, such as very long ones, are replaced: an id is in the log and in a response header. */
const validId = /^[\w.:/+=@-]{1,128}$/;

/** The beginning of all ids of this process. */
const processPart = `req_${randomBytes(9).toString("base64url")}`;
let count = 0;

/**
 * Returns the id of a request: the id that the caller sent in `X-Request-Id`, or else a new one. `rawHeaders`
 * alternates names and values.
 */
export function readRequestId(rawHeaders: readonly string[]): string {
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? "";
    if (name.length !== requestIdHeader.length || name.toLowerCase() !== "x-request-id") continue;
    const id = rawHeaders[at + 1] ?? "";
    if (validId.test(id)) return id;
  }
  return `${processPart}${(count++).toString(36)}`;
}
