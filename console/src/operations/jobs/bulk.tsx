import { useQuery } from "@tanstack/react-query";
import { Info } from "lucide-react";
import type { ReactNode } from "react";
import { useEffect, useRef, useState } from "react";
import { send } from "../../api/client.ts";
import { useFreeze } from "../../shell/live.ts";
import { Button, Icon, Id } from "../../parts/basics.tsx";
import { AsCode } from "../../parts/codes.tsx";
import { Confirm } from "../../parts/dialog.tsx";
import type { SearchParams } from "../../parts/filters.tsx";
import type { JobAction } from "./jobProgress.tsx";
import { JobProgress, jobWords } from "./jobProgress.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Failed } from "../../parts/trouble.tsx";
import { formatCount } from "../../parts/words.ts";

/** Entries that a job acts on: the filter of the page, never the rows that happen to be on it. */
export type Filter = Readonly<Record<string, string | readonly string[] | undefined>>;

/** What changes in each message before it is sent again. */
export type Change = {
  url?: string;
  headers?: Record<string, string[]>;
  jsonPatch?: { op: "add" | "replace" | "remove" | "test"; path: string; value?: unknown }[];
};

type BulkProps = {
  action: JobAction;
  filter: Filter;
  /** The effect of the action, shown before it starts. */
  consequence: string;
  isDangerous?: boolean;
  /** Reports whether the first entries can be tried before the others. */
  hasCanary?: boolean;
  /** What changes in the messages that are sent again. A string says why it cannot be read. */
  change?: Change | string;
  /** The fields of the change. */
  fields?: ReactNode;
  /** Whether the filter has the ids of rows that a person has chosen. */
  isChosen?: boolean;
  close(): void;
  children?: ReactNode;
};

/** How fast a job handles its entries. Empty texts: no limit, no canary. */
type Pace = { rate: string; canary: string };

/** Acts on all entries that match a filter, as a job: a dry run, then the job with its progress. */
export function Bulk(props: BulkProps) {
  const { action, close, children } = props;
  const { verb, many } = jobWords[action];
  const [jobId, setJobId] = useState<string | null>(null);
  const panel = useRef<HTMLElement>(null);
  // The button that opens it may be far below.
  useEffect(() => {
    panel.current?.scrollIntoView({ block: "nearest" });
  }, []);
  return (
    <section
      ref={panel}
      className="bulk"
      aria-label={`${verb} ${many}`}
      onKeyDown={(event) => event.key === "Escape" && close()}
    >
      {jobId === null ? (
        <Plan {...props} start={setJobId}>
          {children}
        </Plan>
      ) : (
        <>
          <JobProgress id={jobId} />
          <footer>
            <span className="only-wide">
              The job continues if you leave this page. <PageLink to="/jobs">All jobs</PageLink>
            </span>
            <span className="spring" />
            <Button kind="ghost" onClick={close}>
              Close
            </Button>
          </footer>
        </>
      )}
    </section>
  );
}

function Plan(props: BulkProps & { start(jobId: string): void }) {
  const { action, filter, consequence, isDangerous = false, close, start, children } = props;
  const { verb, one, many, done } = jobWords[action];
  const [pace, setPace] = useState<Pace>({ rate: "", canary: props.hasCanary ? "1" : "" });
  const [isAsking, setIsAsking] = useState(false);
  useFreeze(true, "Paused: bulk action");
  const { count, counted, sample, last, error } = useDryRun(action, filter);
  // The job leaves out entries that were added after they were counted.
  const body = { ...toBody(props, pace), ...(last !== undefined && { last }) };
  const [failure, setFailure] = useState<unknown>(null);
  const button = `${verb} ${counted}`;
  const title = `${button} ${count === 1 ? one : many}`;
  const run = async (): Promise<void> => {
    const created = await send("POST /v2/jobs", { body });
    if ("jobId" in created) start(created.jobId);
  };
  // The plan itself is the confirmation of what can be undone or done again.
  const press = (): void => (isDangerous ? setIsAsking(true) : void run().catch(setFailure));
  return (
    <>
      <header>
        <h2>{title}</h2>
        <span className="muted">{props.isChosen ? "the chosen rows" : "all that match the filter"}</span>
        {children}
      </header>
      {(error ?? failure) ? (
        <Failed what={error ? "The dry run" : "The job"} error={error ?? failure} />
      ) : (
        <div className="plan">
          <DryRun {...{ consequence, counted, sample, done }} {...props} />
          <PaceFields pace={pace} set={setPace} hasCanary={props.hasCanary ?? false} />
          <AsCode of={{ method: "POST", path: "/v2/jobs", json: body }} />
        </div>
      )}
      <footer>
        <span className="only-wide">The audit log records it.</span>
        <span className="spring" />
        <Button kind="ghost" onClick={close}>
          Close
        </Button>
        <Button
          kind={isDangerous ? "danger-fill" : "primary"}
          disabled={count === 0 || typeof props.change === "string"}
          onClick={press}
        >
          {button}
        </Button>
      </footer>
      {isAsking && (
        <Confirm
          title={title}
          verb={button}
          isDangerous={isDangerous}
          close={() => setIsAsking(false)}
          act={run}
          {...(isDangerous && count >= 100 && { typed: String(count) })}
        >
          <p>{consequence}</p>
        </Confirm>
      )}
    </>
  );
}

/** A note that an action cannot select what the filters show. It offers nothing, as fewer filters mean more. */
export const CannotSelect = ({ children }: { children: ReactNode }) => (
  <section className="callout info" role="status">
    <Icon of={Info} />
    <p>{children}</p>
  </section>
);

/** Returns the filters of a page without what only says how it is shown. */
export const toSelection = (values: SearchParams): SearchParams => {
  const { view: _view, open: _open, cursor: _cursor, back: _back, by: _by, ...shown } = values;
  const { sort: _sort, order: _order, ...filter } = shown;
  return filter;
};

/** Counts the entries that a job would have. */
function useDryRun(action: JobAction, filter: Filter) {
  const found = useQuery({
    queryKey: ["dry run", action, filter],
    queryFn: () => send("POST /v2/jobs", { body: { action, filter, dryRun: true } }),
  });
  const plan = found.data && "dryRun" in found.data ? found.data : null;
  const count = plan?.count ?? 0;
  return {
    count,
    counted: plan ? `${formatCount(count)}${plan.more ? " or more" : ""}` : "…",
    sample: plan?.sample ?? [],
    last: plan?.last,
    error: found.error,
  };
}

/** The number of entries that were counted, and the fields of a change. */
const DryRun = ({
  consequence,
  counted,
  done,
  sample,
  fields,
  change,
}: Pick<BulkProps, "consequence" | "fields" | "change"> & {
  counted: string;
  done: string;
  sample: readonly string[];
}) => (
  <div>
    <h3>Dry run</h3>
    <p>
      <b>{counted}</b> would be {done}. {consequence}
    </p>
    <Sample ids={sample.filter((id) => !isDeadLetterId(id))} />
    {fields}
    {typeof change === "string" && <p className="error">{change}</p>}
  </div>
);

/** Returns the body of the request that starts a job. */
const toBody = (
  { action, filter, change }: Pick<BulkProps, "action" | "filter" | "change">,
  { rate, canary }: Pace,
) => ({
  action,
  filter,
  ...(rate !== "" && { rate: Number(rate) }),
  ...(canary !== "" && { canary: Number(canary) }),
  ...(typeof change === "object" && { change }),
});

type PaceProps = { pace: Pace; set(pace: Pace): void; hasCanary: boolean };

function PaceFields({ pace, set, hasCanary }: PaceProps) {
  return (
    <div>
      <h3>How</h3>
      {hasCanary && (
        <label className="choice">
          <input
            className="check"
            type="checkbox"
            checked={pace.canary !== ""}
            onChange={(event) => set({ ...pace, canary: event.target.checked ? "1" : "" })}
          />
          <span>
            Canary
            <small>The first one must succeed before the others follow.</small>
          </span>
        </label>
      )}
      <label className="unit">
        At most
        <input
          className="input"
          type="number"
          min={1}
          max={1000}
          placeholder="all"
          aria-label="Maximum per second"
          value={pace.rate}
          onChange={(event) => set({ ...pace, rate: event.target.value })}
        />
        per second
      </label>
    </div>
  );
}

/** Reports whether an id is that of a dead letter, which no page of the console shows. */
const isDeadLetterId = (id: string): boolean => /^\d{10,}-/.test(id);

const Sample = ({ ids }: { ids: readonly string[] }) =>
  ids.length === 0 ? null : (
    <p className="note">
      First:{" "}
      {ids.slice(0, 3).map((id, at) => (
        <span key={id}>
          {at > 0 && ", "}
          <Id id={id} />
        </span>
      ))}
    </p>
  );
