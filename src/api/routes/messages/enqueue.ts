import type { IncomingRequest } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { checkName } from "../../http/target.ts";
import { publishing, publishOne } from "./publish.ts";

export const enqueue = route({
  method: "POST",
  path: "/v2/enqueue/{queue}/{destination}",
  operation: "publish",
  unaudited: "it publishes, which the log of messages tells",
  tag: "Publish",
  summary: "Publish a message through a queue",
  about:
    "Like a publish, except that the message waits for its turn in the queue. A queue that does not exist yet lets one message through at a time. With a delay, the message takes its place in line when its time has come.",
  ...publishing,
  handle: async ({ account, incoming, context }) => {
    const queue = checkName("queue", incoming.params["queue"] ?? "");
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

/** What stands behind the name of the queue, as it came. */
function readDestinationPath({ target: { path } }: IncomingRequest): string {
  const end = path.indexOf("/", "/v2/enqueue/".length);
  return end < 0 ? "" : path.slice(end + 1);
}
