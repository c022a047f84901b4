import { Plus, Trash2 } from "lucide-react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { ConfirmButton, PauseButton } from "../../parts/actions.tsx";
import { Button, Icon, Time, Url, useNow } from "../../parts/basics.tsx";
import { TwoLines, Whole } from "../../parts/cells.tsx";
import type { Condition, Reasons } from "../../parts/conditions.ts";
import { useReasons } from "../../parts/conditions.ts";
import { useFilters } from "../../parts/filters.tsx";
import { PageLink } from "../../parts/link.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { Reason } from "../../parts/reason.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatMany } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { useDo } from "../../shell/toasts.tsx";
import { ScheduleDialog } from "./scheduleDialog.tsx";
import { Visible } from "../../parts/visible.tsx";

type Schedule = Response<"GET /v2/schedules">[number];

/** The schedules: when each fires next, when it fired last, and which are paused. */
export function SchedulesPage() {
  const may = useMay();
  const { values, set } = useFilters();
  const { open } = values;
  const schedules = useRead("GET /v2/schedules");
  // A schedule whose messages fail is found by the server.
  const reasons = useReasons("schedule");
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
        {(rows) =>
          // The rows wait for their reasons, so that nothing moves.
          !reasons.isPending && (
            <ListPanel
              label="Schedules"
              columns={makeColumns(reasons)}
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
          )
        }
      </Loaded>
      {open !== undefined && <ScheduleDialog key={open} id={open} close={() => set({ open: undefined })} />}
    </Page>
  );
}

/** The time zone with which a cron expression may begin. */
const zoneOfCron = /^CRON_TZ=(\S+) +/;

const makeColumns = ({ of }: Reasons): Column<Schedule>[] => [
  {
    head: "State",
    className: "c-state w-state",
    cell: ({ scheduleId, isPaused, lastScheduleError }) =>
      isPaused ? (
        <State state="paused" word="Paused" />
      ) : lastScheduleError === undefined && of(scheduleId) === undefined ? (
        <State state="delivered" word="Active" />
      ) : (
        <State state="failed" word="Failing" />
      ),
  },
  {
    head: "Schedule",
    className: "c-what",
    sortBy: ({ scheduleId }) => scheduleId,
    cell: ({ scheduleId, method, destination }) => (
      <>
        <div className="l1">
          <Whole text={scheduleId} isName />
        </div>
        <div className="l2">
          <span className="method">{method}</span>
          <Url url={destination} />
        </div>
      </>
    ),
  },
  {
    head: "Why",
    className: "c-why w-why3",
    cell: (schedule) => <ScheduleReason schedule={schedule} condition={of(schedule.scheduleId)} />,
  },
  {
    head: "Cron",
    className: "p4 w-where c-more",
    cell: ({ cron }) => (
      <TwoLines
        first={
          <span className="mono t" title={cron}>
            {cron.replace(zoneOfCron, "")}
          </span>
        }
        second={zoneOfCron.exec(cron)?.[1]}
      />
    ),
  },
  {
    head: "Last",
    className: "num time p5 w-m",
    sortBy: ({ lastScheduleTime = 0 }) => lastScheduleTime,
    cell: ({ lastScheduleTime }) => (lastScheduleTime ? <Time at={lastScheduleTime} /> : "never"),
  },
  {
    head: "Next",
    className: "num c-when w-m",
    sortBy: ({ nextScheduleTime, isPaused }) => (isPaused ? Infinity : (nextScheduleTime ?? Infinity)),
    cell: ({ nextScheduleTime, isPaused }) =>
      nextScheduleTime && !isPaused ? <Next at={nextScheduleTime} /> : "none",
  },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-actions",
    cell: (schedule) => <Actions schedule={schedule} />,
  },
];

type ReasonProps = { schedule: Schedule; condition: Condition | undefined };

/**
 * Why a schedule is not well, and the button that helps: a schedule that published nothing is changed, and
 * one whose message failed or that is late publishes again. A paused one has its button at the end.
 */
function ScheduleReason({ schedule: { scheduleId, isPaused, lastScheduleError }, condition }: ReasonProps) {
  const may = useMay();
  const act = useDo();
  const run = () => send("POST /v2/schedules/{scheduleId}/run", { params: { scheduleId } });
  const isRefused = condition?.kind === "schedule.refused" || (!condition && lastScheduleError !== undefined);
  const isBad = !isPaused && (condition !== undefined || isRefused);
  return (
    <Reason
      condition={condition}
      name={scheduleId}
      otherwise={isPaused ? "Is paused" : <Visible text={lastScheduleError ?? ""} />}
    >
      {isBad &&
        may.manage &&
        (isRefused ? (
          <PageLink className="btn sm" to="/publish" search={{ schedule: scheduleId }}>
            Edit
          </PageLink>
        ) : (
          <Button
            isSmall
            aria-label={`Run now: ${scheduleId}`}
            onClick={() => void act(run, `Schedule ${scheduleId} has published its message`)}
          >
            Run now
          </Button>
        ))}
    </Reason>
  );
}

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
