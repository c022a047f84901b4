import { Trash2 } from "lucide-react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { ConfirmButton } from "../../parts/actions.tsx";
import { Time } from "../../parts/basics.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatCount, formatMany } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";

type Outbox = Response<"GET /v2/outboxes">["outboxes"][number];

/** The outboxes: databases whose rows become messages. They are added by the command line. */
export function OutboxesPage() {
  const found = useRead("GET /v2/outboxes", {});
  return (
    <Page title="Outboxes" count={found.data && formatMany(found.data.outboxes.length, "outbox", "outboxes")}>
      <Loaded query={found} what="The outboxes">
        {({ outboxes }) => (
          <ListPanel
            label="Outboxes"
            columns={columns}
            rows={outboxes}
            keyOf={({ name }) => name}
            empty={
              <Empty title="No outboxes yet">
                <p>
                  An outbox publishes inside transactions of your PostgreSQL database. “waypost outbox add”
                  adds one.
                </p>
              </Empty>
            }
          />
        )}
      </Loaded>
    </Page>
  );
}

const states = {
  running: <State state="delivered" word="Running" />,
  failing: <State state="failed" word="Failing" />,
  stopped: <State state="paused" word="Stopped" />,
} as const satisfies Record<Outbox["state"], unknown>;

const columns: readonly Column<Outbox>[] = [
  { head: "State", className: "c-state w-state", cell: ({ state }) => states[state] },
  {
    head: "Outbox",
    className: "c-what",
    cell: ({ name, error, reason }) => (
      <>
        <div className="l1">
          <span className="t host">
            <Visible text={name} />
          </span>
        </div>
        <div className="l2">
          <Visible text={error ?? (reason === undefined ? "" : `last rejected row: ${reason}`)} />
        </div>
      </>
    ),
  },
  { head: "Taken", className: "num p2 w-s c-more", cell: ({ taken }) => formatCount(taken) },
  {
    head: "Waiting",
    className: "num p2 w-m c-more",
    cell: ({ waiting, oldestAt }) => (
      <>
        {formatCount(waiting)}
        {oldestAt !== undefined && (
          <>
            {" "}
            since <Time at={oldestAt} />
          </>
        )}
      </>
    ),
  },
  {
    head: "Rejected",
    className: "num p2 w-s c-more",
    cell: ({ rejected }) => <span className={rejected > 0 ? "code-bad" : ""}>{formatCount(rejected)}</span>,
  },
  {
    head: "Last row",
    className: "num time c-when w-m",
    cell: ({ takenAt }) => (takenAt ? <Time at={takenAt} /> : "never"),
  },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-m",
    cell: ({ name }) => (
      <span className="actions end">
        <ConfirmButton
          title={`Remove outbox ${name}`}
          verb="Remove outbox"
          icon={Trash2}
          act={() => send("DELETE /v2/outboxes/{name}", { params: { name } })}
        >
          <p>No more rows are taken. The rows in the database stay.</p>
        </ConfirmButton>
      </span>
    ),
  },
];
