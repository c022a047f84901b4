import { Pause, Play, Trash2 } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useChange, useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Time, Url } from "../../parts/basics.tsx";
import { Confirm } from "../../parts/dialog.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Table } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatMany } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { useDo } from "../../shell/toasts.tsx";

type Schedule = Response<"GET /v2/schedules">[number];

/** The schedules: when each fires next, what its last time came to, and which are paused. */
export function SchedulesPage() {
  const may = useMay();
  const schedules = useRead("GET /v2/schedules");
  return (
    <Page title="Schedules" count={schedules.data && formatMany(schedules.data.length, "schedule")}>
      <Loaded query={schedules} what="The schedules">
        {(rows) => (
          <Panel>
            {rows.length === 0 ? (
              <Empty
                title="No schedules yet"
                actions={
                  may.publish && (
                    <PageLink className="btn" to="/publish">
                      Create a schedule
                    </PageLink>
                  )
                }
              >
                <p>A schedule publishes a message at the times of a cron expression.</p>
              </Empty>
            ) : (
              <Table
                label="Schedules"
                className="two cards"
                columns={columns}
                rows={rows}
                keyOf={({ scheduleId }) => scheduleId}
              />
            )}
          </Panel>
        )}
      </Loaded>
    </Page>
  );
}

const columns: readonly Column<Schedule>[] = [
  {
    head: "State",
    className: "c-state w-state",
    cell: ({ isPaused, lastScheduleError }) =>
      isPaused ? (
        <State state="paused" word="Paused" />
      ) : lastScheduleError === undefined ? (
        <State state="delivered" word="Active" />
      ) : (
        <State state="failed" word="Failing" />
      ),
  },
  {
    head: "Schedule",
    className: "c-what",
    cell: ({ scheduleId, method, destination }) => (
      <>
        <div className="l1">
          <span className="t host">{scheduleId}</span>
        </div>
        <div className="l2">
          <span className="method">{method}</span>
          <Url url={destination} />
        </div>
      </>
    ),
  },
  { head: "Cron", className: "c-why w-where mono", cell: ({ cron }) => cron },
  {
    head: "Last",
    className: "num time p2 w-m",
    cell: ({ lastScheduleTime }) => (lastScheduleTime ? <Time at={lastScheduleTime} /> : "never"),
  },
  {
    head: "Next",
    className: "num c-when w-m",
    cell: ({ nextScheduleTime, isPaused }) =>
      nextScheduleTime && !isPaused ? <Time at={nextScheduleTime} /> : "not now",
  },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-actions",
    cell: (schedule) => <Actions schedule={schedule} />,
  },
];

function Actions({ schedule: { scheduleId, isPaused } }: { schedule: Schedule }) {
  const may = useMay();
  const act = useDo();
  const [isAsking, setIsAsking] = useState(false);
  const change = useChange((run: () => Promise<unknown>) => run());
  if (!may.manage) return null;
  const params = { scheduleId };
  const pause = () => send("POST /v2/schedules/{scheduleId}/pause", { params });
  const resume = () => send("POST /v2/schedules/{scheduleId}/resume", { params });
  const [does, undoes] = isPaused ? [resume, pause] : [pause, resume];
  return (
    <span className="actions end">
      <Button
        isSmall
        kind="ghost"
        icon={Trash2}
        label={`Delete schedule ${scheduleId}`}
        onClick={() => setIsAsking(true)}
      />
      <Button
        isSmall
        icon={isPaused ? Play : Pause}
        onClick={() =>
          void act(
            () => change.mutateAsync(does),
            `Schedule ${scheduleId} is ${isPaused ? "resumed" : "paused"}`,
            () => change.mutateAsync(undoes),
          )
        }
      >
        {isPaused ? "Resume" : "Pause"}
      </Button>
      <Confirm
        title={`Delete schedule ${scheduleId}`}
        verb="Delete schedule"
        isOpen={isAsking}
        close={() => setIsAsking(false)}
        act={() => change.mutateAsync(() => send("DELETE /v2/schedules/{scheduleId}", { params }))}
      >
        <p>It fires no more. Messages that it has published are not affected.</p>
      </Confirm>
    </span>
  );
}
