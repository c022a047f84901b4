import type { Response } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { Time } from "../../parts/basics.tsx";
import { TwoLines, Whole } from "../../parts/cells.tsx";
import { useFilters } from "../../parts/filters.tsx";
import { PageLink } from "../../parts/link.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatCount } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { NotifyButton } from "./notify.tsx";

type Event = Response<"GET /v2/waiters">["events"][number];

/** The events that runs wait for, and the way to notify them. */
export function EventsPage() {
  const { values } = useFilters();
  const found = useRead("GET /v2/waiters", { query: { count: 50, cursor: values["cursor"] } });
  return (
    <Page title="Events">
      <Loaded query={found} what="The events">
        {({ events, cursor }) => (
          <ListPanel
            label="Events that runs wait for"
            columns={columns}
            rows={events}
            keyOf={({ eventId }) => eventId}
            words={["event", "events"]}
            cursor={cursor}
            empty={
              <Empty title="No run waits for an event">
                <p>A run appears here while its step waitForEvent or waitForWebhook waits.</p>
              </Empty>
            }
          />
        )}
      </Loaded>
    </Page>
  );
}

const columns: readonly Column<Event>[] = [
  {
    head: "Event",
    className: "c-what",
    cell: ({ eventId, oldestRun }) => (
      <TwoLines
        first={<Whole text={eventId} isName />}
        second={oldestRun?.kind === "webhook" ? "a call to a webhook" : "an event"}
      />
    ),
  },
  {
    head: "Oldest run",
    className: "c-why w-response",
    cell: ({ oldestRun }) =>
      oldestRun && (
        <TwoLines
          first={
            <PageLink className="link t whole" to={`/runs/${encodeURIComponent(oldestRun.workflowRunId)}`}>
              <Visible text={oldestRun.workflowRunId} />
            </PageLink>
          }
          second={
            <>
              began to wait <Time at={oldestRun.since} />
            </>
          }
        />
      ),
  },
  {
    head: "Waiting",
    className: "num c-when w-s",
    cell: ({ waiting, more }) => `${formatCount(waiting)}${more ? "+" : ""}`,
  },
  {
    head: "Timeout",
    className: "num time p3 w-m",
    cell: ({ oldestRun }) =>
      oldestRun?.timeoutAt === undefined ? "none" : <Time at={oldestRun.timeoutAt} />,
  },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-act2",
    cell: (event) => <Notify event={event} />,
  },
];

function Notify({ event: { eventId, oldestRun } }: { event: Event }) {
  return oldestRun?.kind === "webhook" ? null : (
    <span className="actions end">
      <NotifyButton eventId={eventId} />
    </span>
  );
}
