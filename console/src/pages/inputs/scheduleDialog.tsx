import { Play } from "lucide-react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, useNow } from "../../parts/basics.tsx";
import { Dialog } from "../../parts/dialog.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { Headers, Payload } from "../../parts/payload.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatAhead, formatScheduled } from "../../parts/words.ts";
import { useDo } from "../../shell/toasts.tsx";

type Schedule = Response<"GET /v2/schedules/{scheduleId}">;

/** One schedule: its next five times, its message, and a button that publishes it now. */
export function ScheduleDialog({ id, close }: { id: string; close(): void }) {
  const found = useRead("GET /v2/schedules/{scheduleId}", { params: { scheduleId: id } }, { keep: false });
  const may = useMay();
  const act = useDo();
  const run = () => send("POST /v2/schedules/{scheduleId}/run", { params: { scheduleId: id } });
  return (
    <Dialog title={`Schedule ${id}`} close={close} isWide>
      <Loaded query={found} what="The schedule" rows={4}>
        {(schedule) => (
          <>
            <div className="dialog-body">
              <Details of={schedule} />
            </div>
            <footer>
              {may.manage && (
                <PageLink className="btn" to="/publish" search={{ schedule: id }}>
                  Edit
                </PageLink>
              )}
              {may.manage && (
                <Button icon={Play} onClick={() => void act(run, `Schedule ${id} has published its message`)}>
                  Run now
                </Button>
              )}
              <Button onClick={close}>Close</Button>
            </footer>
          </>
        )}
      </Loaded>
    </Dialog>
  );
}

const Details = ({ of }: { of: Schedule }) => (
  <>
    <dl className="kv">
      <dt>Cron</dt>
      <dd className="mono">{of.cron}</dd>
      <dt>Destination</dt>
      <dd>
        {of.method} <Visible text={of.destination} />
      </dd>
      {of.lastScheduleError !== undefined && (
        <>
          <dt>Last error</dt>
          <dd className="code-bad">
            <Visible text={of.lastScheduleError} />
          </dd>
        </>
      )}
    </dl>
    <section aria-label="Next times">
      <h3>{of.isPaused ? "Next times, once it is resumed" : "Next times"}</h3>
      <ol className="stack">
        {(of.nextTimes ?? []).map((time) => (
          <NextTime key={time} at={time} />
        ))}
      </ol>
    </section>
    <Payload text={of.body} base64={of.bodyBase64} label="Body of the schedule" />
    <Headers headers={of.header} />
    <p>
      <PageLink className="link" to="/messages" search={{ view: "log", scheduleId: of.scheduleId }}>
        Log of this schedule
      </PageLink>
    </p>
  </>
);

/** A time of the schedule, and how long it is ahead if that is less than a day. */
function NextTime({ at }: { at: number }) {
  const now = useNow();
  return (
    <li>
      <time dateTime={new Date(at).toISOString()}>{formatScheduled(at)}</time>{" "}
      <span className="muted">{formatAhead(at, now)}</span>
    </li>
  );
}
