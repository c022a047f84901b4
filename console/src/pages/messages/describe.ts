import { formatCount, formatDistance, formatSpan } from "../../parts/words.ts";
import type { Wait } from "./states.ts";

const of = ({ used, limit }: Wait): string =>
  used === undefined || limit === undefined ? "" : `, ${formatCount(used)} of ${formatCount(limit)} in use`;

/** Returns in a few words why a message waits. The text of the server says it exactly. */
export function describeWait(wait: Wait, now: number): string {
  const { reason, since, until, queue, key, host, endpoint, origin, used, limit, pulled } = wait;
  // The date is in another column.
  const when = until === undefined ? "" : ` ${formatDistance(until, now)}`;
  switch (reason) {
    case "not-due":
      return `Due${when}`;
    case "due":
      return "Due now";
    case "retry":
      return `Retry ${used ?? ""} of ${limit ?? ""}${when}`;
    case "queue":
      return `Queue ${queue ?? ""} is at capacity${of(wait)}`;
    case "queue-paused":
      return `Queue ${queue ?? ""} is paused`;
    case "key-parallelism":
      return `Key ${key ?? ""} is at capacity${of(wait)}`;
    case "key-rate":
      return `Key ${key ?? ""} is at its rate limit${when === "" ? "" : `, next period${when}`}`;
    case "key-paused":
      return `Key ${key ?? ""} is paused`;
    case "account":
      return `The account is at its limit of deliveries${of(wait)}`;
    case "account-endpoint":
      return `${endpoint ?? "Its endpoint"} is at the account's limit${of(wait)}`;
    case "host":
      return `${host ?? "Its host"} is busy`;
    case "puller":
      return `No client has pulled it from ${origin ?? "its origin"}${
        since === undefined ? "" : ` for ${formatSpan(now - since)}`
      }`;
    case "server-held":
      return "All deliveries are paused by the operator";
    case "turn":
      return "Waits for its turn";
    case "sending":
      if (wait.ending) return "An operator has ended this attempt; its connection is being closed";
      return since === undefined ? "Being sent" : `Being sent for ${formatSpan(now - since)}`;
    case "acknowledging": {
      const holder = pulled === true ? "a client that pulled it" : "its receiver";
      return `Held by ${holder}${since === undefined ? "" : ` for ${formatSpan(now - since)}`}`;
    }
    case "lease-over":
      return "Its node stopped; another node takes over";
  }
}
