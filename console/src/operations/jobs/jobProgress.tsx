import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { CircleStop } from "lucide-react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { useDo } from "../../shell/toasts.tsx";
import { Button, Id, Time, useNow } from "../../parts/basics.tsx";
import { PageLink } from "../../parts/link.tsx";
import type { StateName } from "../../parts/stateName.ts";
import { Glyph, State } from "../../parts/state.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatCount, formatMany, formatSpan } from "../../parts/words.ts";

/** A job, which does one action with many entries in the background. */
export type Job = Response<"GET /v2/jobs/{jobId}">;
export type JobAction = Job["action"];

/** The words of each action: what the button says, and the entries. */
export const jobWords: Record<JobAction, { verb: string; done: string; one: string; many: string }> = {
  "dlq.retry": { verb: "Retry", done: "retried", one: "dead letter", many: "dead letters" },
  "dlq.delete": { verb: "Delete", done: "deleted", one: "dead letter", many: "dead letters" },
  "runs.resume": { verb: "Resume", done: "resumed", one: "failed run", many: "failed runs" },
  "runs.restart": { verb: "Restart", done: "restarted", one: "failed run", many: "failed runs" },
  "runs.cancel": { verb: "Cancel", done: "cancelled", one: "run", many: "runs" },
  "messages.cancel": { verb: "Cancel", done: "cancelled", one: "message", many: "messages" },
};

const states: Record<Job["state"], { state: StateName; word: string }> = {
  running: { state: "delivering", word: "Running" },
  waiting: { state: "held", word: "Waiting" },
  stopped: { state: "cancelled", word: "Stopped" },
  done: { state: "delivered", word: "Done" },
  failed: { state: "failed", word: "Failed" },
};

/** The words for what a job waits for. */
const waits = { canary: "Canary", disk: "Disk full", budget: "Budget spent" } as const;

const isActive = ({ state }: Job): boolean => state === "running" || state === "waiting";

/** One job, read again until it ends. The page and the counts of the navigation are then read again. */
export function JobProgress({ id }: { id: string }) {
  const client = useQueryClient();
  const found = useRead("GET /v2/jobs/{jobId}", { params: { jobId: id } }, { every: 1_000 });
  const hasEnded = found.data !== undefined && !isActive(found.data);
  useEffect(() => {
    if (hasEnded) void client.invalidateQueries();
  }, [client, hasEnded]);
  return found.data ? <JobRow job={found.data} /> : null;
}

/** A job: its progress, its canary, its failures, and the button that stops it. */
export function JobRow({ job }: { job: Job }) {
  const { jobId, action, total, startedBy, createdAt } = job;
  const { verb, one, many } = jobWords[action];
  const may = useMay();
  const act = useDo();
  const stop = () => send("DELETE /v2/jobs/{jobId}", { params: { jobId } });
  return (
    <article className="job" aria-label={`Job ${jobId}`}>
      <div className="job-top">
        <State {...states[job.state]} {...(job.waitingFor && { word: waits[job.waitingFor] })} />
        <div>
          <b>
            {verb} {total === undefined ? many : formatMany(total, one, many)}
          </b>{" "}
          <span className="muted">
            started <Time at={createdAt} /> by <Visible text={startedBy.name ?? startedBy.kind} />
          </span>
        </div>
        {may.manage && isActive(job) && (
          <div className="act">
            <Button isSmall icon={CircleStop} onClick={() => void act(stop, "The job is stopped")}>
              Stop
            </Button>
          </div>
        )}
      </div>
      {job.canary !== undefined && <Canary job={job} canary={job.canary} />}
      <Progress job={job} />
      <Numbers job={job} />
      {job.error !== undefined && (
        <p className="err">
          <Visible text={job.error} />
        </p>
      )}
      <Failures job={job} />
    </article>
  );
}

function Progress({ job: { total = 0, done, failed } }: { job: Job }) {
  const share = (count: number): string => `${total === 0 ? 0 : (100 * count) / total}%`;
  return (
    <svg className="progress" role="img" aria-label={`${done} of ${total} done, ${failed} failed`}>
      <rect className="f-track" width="100%" height="100%" />
      <rect className="f-good" width={share(done)} height="100%" />
      <rect className="f-bad" x={share(done)} width={share(failed)} height="100%" />
    </svg>
  );
}

function Numbers({ job }: { job: Job }) {
  const { total, done, failed, rate, createdAt, endedAt } = job;
  const now = useNow();
  const left = total === undefined ? null : Math.max(0, total - done - failed);
  const handled = done + failed;
  const perMilli = rate === undefined ? handled / Math.max(1, now - createdAt) : rate / 1000;
  return (
    <div className="nums">
      <span>
        <b>{formatCount(done)}</b> done
      </span>
      <span>
        <b className={failed > 0 ? "code-bad" : undefined}>{formatCount(failed)}</b> failed
      </span>
      {isActive(job) ? (
        <span>
          {left === null ? "counting" : `${formatCount(left)} left`}
          {left !== null && left > 0 && perMilli > 0 && `, about ${formatSpan(left / perMilli)}`}
        </span>
      ) : (
        <span>
          {left !== null && left > 0 && `${formatCount(left)} unchanged, `}
          took {formatSpan((endedAt ?? now) - createdAt)}
        </span>
      )}
      {rate !== undefined && <span className="muted">at most {formatCount(rate)} per second</span>}
    </div>
  );
}

/** The stages of a job with a canary: the first entries, then all others. */
function Canary({ job, canary }: { job: Job; canary: number }) {
  const { state, done, failed, results = [] } = job;
  const hasPassed = state === "done" || done + failed > canary;
  const first: StateName = hasPassed ? "delivered" : state === "failed" ? "failed" : states[state].state;
  return (
    <ol className="canary two">
      <li>
        <Glyph state={first} />
        First {formatCount(canary)}
        {results.slice(0, 1).map(({ became }) => (
          <BecameLink key={became} id={became} />
        ))}
      </li>
      <li className={`bar ${hasPassed ? "" : "next"}`} aria-hidden="true" />
      <li>
        <Glyph state={hasPassed ? states[state].state : "pending"} />
        All others
      </li>
    </ol>
  );
}

const BecameLink = ({ id }: { id: string }) =>
  id.startsWith("msg_") ? (
    <PageLink className="link" to="/messages" search={{ open: id }}>
      <Id id={id} />
    </PageLink>
  ) : (
    <PageLink className="link" to={`/runs/${encodeURIComponent(id)}`}>
      <Id id={id} />
    </PageLink>
  );

const Failures = ({ job: { failures = [] } }: { job: Job }) =>
  failures.length === 0 ? null : (
    <details>
      <summary>{formatMany(failures.length, "reason", "reasons")}</summary>
      <ul>
        {failures.map(({ id, reason }) => (
          <li key={id}>
            <Id id={id} /> <Visible text={reason} />
          </li>
        ))}
      </ul>
    </details>
  );
