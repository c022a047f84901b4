import { z } from "zod";
import type { NodeRecord } from "../../../engine/core/cluster/nodeState.ts";
import { readNodeStates } from "../../../engine/core/cluster/nodeState.ts";
import { toJson } from "../../fields/field.ts";
import { nodeFields } from "../../fields/node.ts";
import { toSchema } from "../../views/fieldSchema.ts";
import { operatorRoute } from "../../route/operator.ts";
import type { RouteContext } from "../../route/route.ts";

/** Returns the nodes of the store, and this node if the store does not list it. */
export async function readNodes({
  store,
  thisNode,
  version = "",
}: RouteContext): Promise<readonly NodeRecord[]> {
  const records = await store.upkeep.nodes();
  if (!thisNode || records.some(({ id }) => id === thisNode.id)) return records;
  return [{ ...thisNode, version, changedAt: null, membership: 0, isAlive: false }, ...records];
}

/** The route that lists the servers that share one store. */
export const nodes = operatorRoute({
  method: "GET",
  path: "/v2/admin/nodes",
  tag: "Administration",
  summary: "List the nodes",
  about:
    "Lists the servers that share the database, at most 100, those that have changed something last first. " +
    "A server with its own data folder lists only itself. A node is listed until 30 days after its last " +
    "change.",
  answers: {
    200: {
      about: "The nodes.",
      schema: z.object({ nodes: z.array(toSchema(nodeFields)).describe("The nodes.") }),
    },
  },
  refusals: [],
  handle: async ({ context }) => {
    const self = context.thisNode?.id ?? "";
    const records = await readNodes(context);
    const states = readNodeStates(records, self);
    const nodes = records.map((record) =>
      toJson(nodeFields, {
        ...record,
        state: states.get(record.id) ?? "unknown",
        isThis: record.id === self,
      }),
    );
    return { status: 200, body: { nodes } };
  },
});
