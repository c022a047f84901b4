import type { NodeRecord, NodeState } from "../../engine/core/cluster/nodeState.ts";
import { nodeStates } from "../../engine/core/cluster/nodeState.ts";
import type { FieldsOf } from "./field.ts";
import { mark, optional, text, time, word } from "./field.ts";

/** The fields of a server that shares the store. */
export const nodeFields: FieldsOf<NodeRecord & { state: NodeState; isThis: boolean }> = {
  id: text("The id of the node. A server has a new id after each start.", ({ id }) => id),
  state: word(nodeStates)(
    "running: it responds, or has its membership. stopped: it has shut down cleanly. lost: it " +
      "has lost its membership, so other nodes send its messages. unknown: nodes have no " +
      "memberships, for example behind a pooler in transaction mode.",
    ({ state }) => state,
  ),
  isThis: mark("Present for the node that responds.", ({ isThis }) => isThis),
  version: optional(text)("The version of the program.", ({ version }) => version || null),
  startedAt: time("When the node started, in Unix milliseconds.", ({ startedAt }) => startedAt),
  changedAt: optional(time)(
    "When the node last changed something in the database, in Unix milliseconds.",
    ({ changedAt }) => changedAt,
  ),
};
