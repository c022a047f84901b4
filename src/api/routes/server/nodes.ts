import { z } from "zod";
import type { NodeRecord, NodeState } from "../../../engine/core/cluster/nodeState.ts";
import { nodeStates, readNodeStates } from "../../../engine/core/cluster/nodeState.ts";
import { operatorRoute } from "../../route/operator.ts";
import type { RouteContext } from "../../route/route.ts";

const nodeSchema = z.object({
  id: z.string().describe("The id of the node. A server has a new id after each start."),
  state: z
    .enum(nodeStates)
    .describe(
      "running: it responds, or holds its session lease. stopped: it has ended in an orderly way. lost: it " +
        "has lost its session lease, so other nodes send its messages. unknown: nodes have no session " +
        "leases, for example behind a pooler in transaction mode.",
    ),
  isThis: z.literal(true).optional().describe("Present for the node that responds."),
  version: z.string().optional().describe("The version of the program."),
  startedAt: z.int().describe("When the node started, in Unix milliseconds."),
  changedAt: z
    .int()
    .optional()
    .describe("When the node last changed something in the database, in Unix milliseconds."),
});

/** Returns the nodes of the store, and this node if the store does not list it. */
async function readRecords({ store, thisNode, version = "" }: RouteContext): Promise<readonly NodeRecord[]> {
  const records = (await store.nodes?.()) ?? [];
  if (!thisNode || records.some(({ id }) => id === thisNode.id)) return records;
  return [{ ...thisNode, version, changedAt: null, session: 0, isAlive: false }, ...records];
}

const nodeJson = (
  { id, version, startedAt, changedAt }: NodeRecord,
  { state = "unknown", isThis }: { state: NodeState | undefined; isThis: boolean },
): z.output<typeof nodeSchema> => ({
  id,
  state,
  ...(isThis && { isThis }),
  ...(version !== "" && { version }),
  startedAt,
  ...(changedAt !== null && { changedAt }),
});

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
      schema: z.object({ nodes: z.array(nodeSchema).describe("The nodes.") }),
    },
  },
  refusals: [],
  handle: async ({ context }) => {
    const self = context.thisNode?.id ?? "";
    const records = await readRecords(context);
    const states = readNodeStates(records, self);
    const nodes = records.map((record) =>
      nodeJson(record, { state: states.get(record.id), isThis: record.id === self }),
    );
    return { status: 200, body: { nodes } };
  },
});
