import { useState } from "react";
import { useRead } from "../../api/queries.ts";
import { Time } from "../../parts/basics.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Table } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatCount, formatMany } from "../../parts/words.ts";
import type { Compared, Verdict } from "./compareRuns.ts";
import { compareRuns } from "./compareRuns.ts";
import type { Run, Step } from "./shapes.ts";
import { stepStates } from "./shapes.ts";

/** The number of rows that are shown. */
const maxRows = 200;

/** A run beside the newest run of the same workflow that succeeded. */
export function CompareRun({ run }: { run: Run }) {
  const { workflowUrl } = run;
  const query = { workflowUrl, state: "RUN_SUCCESS", count: 1 };
  const found = useRead("GET /v2/workflows/logs", { query }, { every: null });
  return (
    <Loaded query={found} what="A run that succeeded">
      {({ runs: [good] }) =>
        good ? (
          <Comparison run={run} good={good} />
        ) : (
          <Panel>
            <Empty title="No run to compare with">
              <p>No run of this workflow has succeeded within the retention of the log.</p>
            </Empty>
          </Panel>
        )
      }
    </Loaded>
  );
}

function Comparison({ run, good }: { run: Run; good: Run }) {
  const [isAll, setIsAll] = useState(false);
  const all = compareRuns(run, good);
  const different = all.filter(({ verdict }) => verdict !== "same");
  const rows = isAll ? all : different;
  return (
    <Panel
      title="Compared with the newest run that succeeded"
      sub={
        <>
          <PageLink className="link" to={`/runs/${encodeURIComponent(good.workflowRunId)}`}>
            <Visible text={good.workflowRunId} />
          </PageLink>
          , started <Time at={good.workflowRunCreatedAt} />
        </>
      }
      end={
        <label className="choice">
          <input className="check" type="checkbox" checked={!isAll} onChange={() => setIsAll(!isAll)} />
          Only what differs
        </label>
      }
      footer={
        <span role="status">
          {formatMany(different.length, "step differs", "steps differ")} of {formatCount(all.length)}
          {rows.length > maxRows && `; the first ${formatCount(maxRows)} are shown`}
        </span>
      }
    >
      {rows.length === 0 ? (
        <Empty title="Nothing differs">
          <p>Both runs have the same steps with the same results.</p>
        </Empty>
      ) : (
        <Table
          label="Comparison"
          className="two cards"
          columns={columns}
          rows={rows.slice(0, maxRows)}
          keyOf={(row) => String(rows.indexOf(row))}
        />
      )}
    </Panel>
  );
}

const verdicts: Record<Verdict, string> = {
  same: "same result",
  result: "other result",
  state: "other state",
  "only-here": "only in this run",
  "only-there": "not reached in this run",
};

const StepCell = ({ step }: { step: Step | null }) =>
  step === null ? (
    <span className="muted">none</span>
  ) : (
    <>
      <div className="l1">
        <State {...stepStates[step.state]} />
      </div>
      <div className="l2 mono">
        <span className="t">
          <Visible text={(step.out ?? step.errors?.at(-1)?.error ?? "").slice(0, 300)} />
        </span>
      </div>
    </>
  );

const columns: readonly Column<Compared>[] = [
  {
    head: "Step",
    className: "c-what w-run",
    cell: ({ name, verdict }) => (
      <>
        <div className="l1">
          <span className="t host">
            <Visible text={name} />
          </span>
        </div>
        <div className="l2">{verdicts[verdict]}</div>
      </>
    ),
  },
  { head: "This run", className: "c-why", cell: ({ mine }) => <StepCell step={mine} /> },
  { head: "The run that succeeded", className: "c-why", cell: ({ other }) => <StepCell step={other} /> },
];
