import { Bell } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Time } from "../../parts/basics.tsx";
import { TwoLines } from "../../parts/cells.tsx";
import { AsCode } from "../../parts/codes.tsx";
import { Field, FormDialog } from "../../parts/dialog.tsx";
import { useFilters } from "../../parts/filters.tsx";
import { PageLink } from "../../parts/link.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatCount } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { useToasts } from "../../shell/toasts.tsx";

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
        first={
          <span className="t host">
            <Visible text={eventId} />
          </span>
        }
        second={oldestRun?.kind === "webhook" ? "a call to a webhook" : "an event"}
      />
    ),
  },
  {
    head: "Oldest run",
    className: "c-why w-why",
    cell: ({ oldestRun }) =>
      oldestRun && (
        <TwoLines
          first={
            <PageLink className="link t" to={`/runs/${encodeURIComponent(oldestRun.workflowRunId)}`}>
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
    className: "num time p2 w-m",
    cell: ({ oldestRun }) =>
      oldestRun?.timeoutAt === undefined ? "none" : <Time at={oldestRun.timeoutAt} />,
  },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-tok",
    cell: (event) => <Notify event={event} />,
  },
];

function Notify({ event: { eventId, oldestRun } }: { event: Event }) {
  const may = useMay();
  const [isOpen, setIsOpen] = useState(false);
  if (!may.manage || oldestRun?.kind === "webhook") return null;
  return (
    <span className="actions end">
      <Button isSmall icon={Bell} onClick={() => setIsOpen(true)}>
        Notify
      </Button>
      {isOpen && <NotifyForm eventId={eventId} close={() => setIsOpen(false)} />}
    </span>
  );
}

/** Sends an event to all runs that wait for it. */
function NotifyForm({ eventId, close }: { eventId: string; close(): void }) {
  const [body, setBody] = useState("");
  const { say } = useToasts();
  const notify = async (): Promise<void> => {
    await send("POST /v2/notify/{eventId}", { params: { eventId }, body });
    say(`Event ${eventId} is sent`);
  };
  return (
    <FormDialog title={`Notify ${eventId}`} verb="Notify" close={close} act={notify}>
      <p>All runs that wait for this event continue with this data.</p>
      <Field name="Data" isOptional>
        <textarea
          className="input mono"
          rows={4}
          spellCheck={false}
          value={body}
          onChange={(event) => setBody(event.target.value)}
        />
      </Field>
      <AsCode
        of={{
          method: "POST",
          path: `/v2/notify/${encodeURIComponent(eventId)}`,
          body: body === "" ? undefined : body,
        }}
      />
    </FormDialog>
  );
}
