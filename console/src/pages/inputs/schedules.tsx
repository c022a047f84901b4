import { Plus, Trash2 } from "lucide-react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { ConfirmButton, PauseButton } from "../../parts/actions.tsx";
import { Icon, Time, Url, useNow } from "../../parts/basics.tsx";
import { useFilters } from "../../parts/filters.tsx";
import { PageLink } from "../../parts/link.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatMany } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { ScheduleDialog } from "./scheduleDialog.tsx";
import { Visible } from "../../parts/visible.tsx";

type Schedule = Response<"GET /v2/schedules">[number];

/** The schedules: when each fires next, when it fired last, and which are paused. */
export function SchedulesPage() {
  const may = useMay();
  const { values, set } = useFilters();
  const { open } = values;
  const schedules = useRead("GET /v2/schedules");
  return (
    <Page title="Schedules" count={schedules.data && formatMany(schedules.data.length, "schedule")}>
      {may.publish && (
        <div className="toolbar">
          <span className="spring" />
          <PageLink className="btn" to="/publish" search={{ kind: "schedule" }}>
            <Icon of={Plus} />
            New schedule
          </PageLink>
        </div>
      )}
      <Loaded query={schedules} what="The schedules">
        {(rows) => (
          <ListPanel
            label="Schedules"
            columns={columns}
            rows={rows}
            keyOf={({ scheduleId }) => scheduleId}
            open={({ scheduleId }) => set({ open: scheduleId })}
            openKey={open}
            empty={
              <Empty title="No schedules yet">
                <p>A schedule publishes a message at the times of a cron expression.</p>
              </Empty>
            }
          />
        )}
      </Loaded>
      {open !== undefined && <ScheduleDialog key={open} id={open} close={() => set({ open: undefined })} />}
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
          <span className="t host">
            <Visible text={scheduleId} />
          </span>
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
      nextScheduleTime && !isPaused ? <Next at={nextScheduleTime} /> : "none",
  },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-actions",
    cell: (schedule) => <Actions schedule={schedule} />,
  },
];

/** The next time of a schedule. A time that has passed is due until the server has fired the schedule. */
const Next = ({ at }: { at: number }) => (useNow() < at ? <Time at={at} /> : "due now");

function Actions({ schedule: { scheduleId, isPaused } }: { schedule: Schedule }) {
  const params = { scheduleId };
  return (
    <span className="actions end">
      <ConfirmButton
        title={`Delete schedule ${scheduleId}`}
        verb="Delete schedule"
        icon={Trash2}
        act={() => send("DELETE /v2/schedules/{scheduleId}", { params })}
      >
        <p>It no longer fires. Messages that it published are not affected.</p>
      </ConfirmButton>
      <PauseButton
        name={`Schedule ${scheduleId}`}
        isPaused={isPaused}
        pause={() => send("POST /v2/schedules/{scheduleId}/pause", { params })}
        resume={() => send("POST /v2/schedules/{scheduleId}/resume", { params })}
      />
    </span>
  );
}
