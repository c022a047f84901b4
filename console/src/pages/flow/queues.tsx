import { useState } from "react";
import { useNavigate } from "@tanstack/react-router";
import { Plus } from "lucide-react";
import type { Response } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Time } from "../../parts/basics.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatCount, formatMany } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { PauseQueue, QueueForm } from "./queueActions.tsx";

export type Queue = Response<"GET /v2/queues">[number];

/** All queues: the number of messages in each, the parallelism, and which are paused. */
export function QueuesPage() {
  const queues = useRead("GET /v2/queues");
  // The server finds the queues that make no progress.
  const overview = useRead("GET /v2/overview");
  const blocked = new Set(
    overview.data?.conditions.filter(({ kind }) => kind === "queue.blocked").map(({ subject }) => subject),
  );
  const may = useMay();
  const navigate = useNavigate();
  const [isNew, setIsNew] = useState(false);
  const create = may.manage && (
    <Button icon={Plus} onClick={() => setIsNew(true)}>
      New queue
    </Button>
  );
  return (
    <Page title="Queues" count={queues.data && formatMany(queues.data.length, "queue")}>
      <div className="toolbar">
        <span className="spring" />
        {create}
      </div>
      <Loaded query={queues} what="The queues">
        {(rows) => (
          <ListPanel
            label="Queues"
            className="cards"
            columns={[makeStateColumn(blocked), ...columns]}
            rows={rows.toSorted((one, other) => other.lag - one.lag)}
            keyOf={({ name }) => name}
            open={({ name }) => void navigate({ to: `/queues/${encodeURIComponent(name)}` })}
            empty={
              <Empty title="No queues yet">
                <p>
                  A queue sends its messages in order, at most as many at the same time as its parallelism
                  allows. The first message for a queue creates it.
                </p>
              </Empty>
            }
          />
        )}
      </Loaded>
      {isNew && <QueueForm close={() => setIsNew(false)} />}
    </Page>
  );
}

const makeStateColumn = (blocked: ReadonlySet<string>): Column<Queue> => ({
  head: "State",
  className: "c-state w-state",
  cell: ({ name, paused, lag }) =>
    paused ? (
      <State state="paused" word="Paused" />
    ) : blocked.has(name) ? (
      <State state="held" word="Blocked" />
    ) : lag > 0 ? (
      <State state="delivering" word="Active" />
    ) : (
      <State state="delivered" word="Empty" />
    ),
});

const columns: readonly Column<Queue>[] = [
  { head: "Queue", className: "c-what", cell: ({ name }) => <span className="host">{name}</span> },
  { head: "Messages", className: "num c-when w-s", cell: ({ lag }) => <b>{formatCount(lag)}</b> },
  { head: "Parallelism", className: "num p1 w-m", cell: ({ parallelism }) => formatCount(parallelism) },
  { head: "Changed", className: "num time p2 w-m", cell: ({ updatedAt }) => <Time at={updatedAt} /> },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-act2",
    cell: (queue) => <PauseQueue queue={queue} />,
  },
];
