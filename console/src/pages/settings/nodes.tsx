import type { Response } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { Id, Time } from "../../parts/basics.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";

type Node = Response<"GET /v2/admin/nodes">["nodes"][number];

const states = {
  running: { state: "delivered", word: "Running" },
  stopped: { state: "cancelled", word: "Stopped" },
  lost: { state: "failed", word: "Lost" },
  unknown: { state: "pending", word: "Unknown" },
} as const;

/** The servers that share the database, and whether each is alive. */
export function Nodes() {
  const found = useRead("GET /v2/admin/nodes");
  return (
    <Loaded query={found} what="The nodes" rows={1}>
      {({ nodes }) => (
        <ListPanel
          label="Nodes"
          title="Nodes"
          sub="servers that share the database: a new row at each start of a server"
          className="cards"
          columns={columns}
          rows={nodes}
          keyOf={({ id }) => id}
          empty={null}
        />
      )}
    </Loaded>
  );
}

const columns: readonly Column<Node>[] = [
  { head: "State", className: "c-state w-state", cell: ({ state }) => <State {...states[state]} /> },
  {
    head: "Node",
    className: "c-what",
    cell: ({ id, isThis }) => (
      <>
        <Id id={id} /> {isThis && <span className="chip">responds</span>}
      </>
    ),
  },
  { head: "Version", className: "p1 w-m", cell: ({ version }) => version ?? "" },
  { head: "Started", className: "num time p2 w-m", cell: ({ startedAt }) => <Time at={startedAt} /> },
  {
    head: "Last change",
    className: "num time c-when w-m",
    cell: ({ changedAt }) => changedAt !== undefined && <Time at={changedAt} />,
  },
];
