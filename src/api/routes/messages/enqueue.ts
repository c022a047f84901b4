import type { IncomingRequest } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { parseName } from "../../http/target.ts";
import { publishing, publishOne } from "./publish.ts";

/** The route that publishes one message through a queue. */
export const enqueue = route({
  method: "POST",
  path: "/v2/enqueue/{queue}/{destination}",
  operation: "publish",
  refusesSession: true,
  unaudited: "publishes messages, which the message log records",
  tag: "Publish",
  summary: "Publish a message through a queue",
  about:
    "Like POST /v2/publish/{destination}, except that the message waits for its turn in the queue. " +
    "A queue that does not exist is created with a parallelism of 1, so it sends one message at a time. " +
    "A message with a delay joins the queue when the delay is over.",
  ...publishing,
  handle: async ({ account, incoming, context }) => {
    const queue = parseName("queue", incoming.params["queue"] ?? "");
    return publishOne(incoming, context, {
      destination: readDestinationPath(incoming),
      account: account.id,
      store: context.store,
      brand: context.brand,
      queue,
      maxQueues: context.maxQueues,
    });
  },
});

/** Returns the rest of the path after the name of the queue, as received. */
function readDestinationPath({ target: { path } }: IncomingRequest): string {
  const end = path.indexOf("/", "/v2/enqueue/".length);
  return end < 0 ? "" : path.slice(end + 1);
}
