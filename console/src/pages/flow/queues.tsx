import { useState } from "react";
import { useNavigate } from "@tanstack/react-router";
import { Plus } from "lucide-react";
import type { Response } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Time } from "../../parts/basics.tsx";
import type { Condition, Reasons } from "../../parts/conditions.ts";
import { useReasons } from "../../parts/conditions.ts";
import { PageLink } from "../../parts/link.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { Reason } from "../../parts/reason.tsx";
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
  const reasons = useReasons("queue");
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
        {(rows) =>
          // The rows wait for their reasons, so that nothing moves.
          !reasons.isPending && (
            <ListPanel
              label="Queues"
              columns={makeColumns(reasons)}
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
          )
        }
      </Loaded>
      {isNew && <QueueForm close={() => setIsNew(false)} />}
    </Page>
  );
}

/** The words of the state column for queues that the server has found to make too little progress. */
const words: Partial<Record<Condition["kind"], string>> = {
  "queue.blocked": "Blocked",
  "queue.drowning": "Growing",
};

const makeColumns = ({ of }: Reasons): Column<Queue>[] => [
  {
    head: "State",
    className: "c-state w-state",
    cell: ({ name, paused, lag }) => {
      const kind = of(name)?.kind;
      const word = kind && words[kind];
      if (paused) return <State state="paused" word="Paused" />;
      if (word !== undefined) return <State state="held" word={word} />;
      return lag > 0 ? <State state="delivering" word="Active" /> : <State state="delivered" word="Empty" />;
    },
  },
  {
    head: "Queue",
    className: "c-what",
    sortBy: ({ name }) => name,
    cell: ({ name }) => <span className="host">{name}</span>,
  },
  {
    head: "Why",
    className: "c-why w-why3",
    cell: (queue) => <QueueReason queue={queue} condition={of(queue.name)} />,
  },
  {
    head: "Messages",
    className: "num c-when w-s",
    sortBy: ({ lag }) => lag,
    cell: ({ lag }) => <b>{formatCount(lag)}</b>,
  },
  {
    head: "Parallelism",
    className: "num p2 w-s",
    sortBy: ({ parallelism }) => parallelism,
    cell: ({ parallelism }) => formatCount(parallelism),
  },
  {
    head: "Changed",
    className: "num time p4 w-m",
    sortBy: ({ updatedAt }) => updatedAt,
    cell: ({ updatedAt }) => <Time at={updatedAt} />,
  },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-act2",
    cell: (queue) => <PauseQueue queue={queue} />,
  },
];

/** Why a queue does not move, and the button that helps. A paused queue has its button at the end. */
function QueueReason({ queue, condition }: { queue: Queue; condition: Condition | undefined }) {
  const may = useMay();
  const [isForm, setIsForm] = useState(false);
  const isSlow = condition?.kind === "queue.drowning" || condition?.kind === "queue.limited";
  return (
    <Reason condition={condition} name={queue.name} otherwise={queue.paused ? "Is paused" : ""}>
      {isSlow && may.manage && (
        <Button isSmall aria-label={`Set parallelism: ${queue.name}`} onClick={() => setIsForm(true)}>
          Set parallelism
        </Button>
      )}
      {condition?.kind === "queue.blocked" && (
        <PageLink className="btn sm" to={`/queues/${encodeURIComponent(queue.name)}`}>
          Show slots
        </PageLink>
      )}
      {isForm && <QueueForm queue={queue} close={() => setIsForm(false)} />}
    </Reason>
  );
}
