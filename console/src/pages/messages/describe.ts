import { formatCount, formatRelative } from "../../parts/words.ts";
import type { Wait } from "./states.ts";

const of = ({ used, limit }: Wait): string =>
  used === undefined || limit === undefined ? "" : `, ${formatCount(used)} of ${formatCount(limit)} in use`;

/** Returns in a few words why a message waits. The text of the server says it exactly. */
export function describeWait(wait: Wait, now: number): string {
  const { reason, until, queue, key, host, endpoint, used, limit } = wait;
  const when = until === undefined ? "" : ` ${formatRelative(until, now)}`;
  switch (reason) {
    case "not-due":
      return `Due${when}`;
    case "due":
      return "Due now";
    case "retry":
      return `Retry ${used ?? ""} of ${limit ?? ""}${when}`;
    case "queue":
      return `Queue ${queue ?? ""} is full${of(wait)}`;
    case "queue-paused":
      return `Queue ${queue ?? ""} is paused`;
    case "key-parallelism":
      return `Key ${key ?? ""} is full${of(wait)}`;
    case "key-rate":
      return `Key ${key ?? ""} has used its rate${when === "" ? "" : `, next period${when}`}`;
    case "key-paused":
      return `Key ${key ?? ""} is paused`;
    case "account":
      return `The account has all its deliveries in flight${of(wait)}`;
    case "account-endpoint":
      return `${endpoint ?? "Its endpoint"} has all its deliveries in flight${of(wait)}`;
    case "host":
      return `${host ?? "Its host"} is busy`;
    case "server-held":
      return "The server holds all deliveries";
    case "turn":
      return "It waits for its turn";
    case "sending":
      return "Being sent";
    case "lease-over":
      return "Its node has ended; another one takes it over";
  }
}
