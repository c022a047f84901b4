import { Play, TriangleAlert } from "lucide-react";
import { useState } from "react";
import { pace, useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Icon } from "../../parts/basics.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatCount, formatMany } from "../../parts/words.ts";
import type { Filter } from "../../operations/jobs/bulk.tsx";
import { Bulk } from "../../operations/jobs/bulk.tsx";
import type { Run } from "./shapes.ts";
import { describeError, listSteps } from "./shapes.ts";
import { showOpenStep } from "./timeline.tsx";

/** How a run failed, how many others failed for the same reason, and the way to resume all of them. */
export function Failure({ run }: { run: Run }) {
  const [filter, setFilter] = useState<Filter | null>(null);
  const others = useOthers(run);
  const failed = listSteps(run).find(({ state }) => state === "STEP_FAILED");
  const last = failed?.errors?.at(-1);
  return (
    <>
      <section className="callout bad" role="status">
        <Icon of={TriangleAlert} />
        <div>
          <h2>
            <Visible
              text={
                failed
                  ? `“${failed.stepName}” failed after ${formatMany(failed.errors?.length || 1, "attempt")}`
                  : "The run failed"
              }
            />
          </h2>
          <p>
            <Visible text={(describeError(last) || "The failed step below has the details.").slice(0, 400)} />
          </p>
          {run.resumedAs ? (
            <p>
              Resumed as{" "}
              <PageLink className="link" to={`/runs/${encodeURIComponent(run.resumedAs.workflowRunId)}`}>
                {run.resumedAs.workflowRunId}
              </PageLink>
              .
            </p>
          ) : (
            run.dlqId !== undefined && (
              <p>Resume sends this step again, in a new run. Finished steps keep their results.</p>
            )
          )}
          {run.dlqId !== undefined && <Others others={others} resumeAll={setFilter} />}
        </div>
        {failed && (
          <div className="actions">
            <Button isSmall onClick={showOpenStep}>
              Show step
            </Button>
          </div>
        )}
      </section>
      {filter && (
        <Bulk
          action="runs.resume"
          filter={filter}
          consequence="Each is resumed from its failed step, in a new run."
          hasCanary
          close={() => setFilter(null)}
        />
      )}
    </>
  );
}

/** The other runs that failed alike. `cause` selects them, together with this one. */
type OthersCount = { count: number; isMinimum: boolean; cause: string };

/** Counts the other runs that failed at the same step with the same error. Null while they are counted. */
function useOthers({ dlqId }: Run): OthersCount | null {
  const route = "GET /v2/workflows/dlq/groups";
  const own = useRead(route, { query: { dlqIds: dlqId } }, { every: null, enabled: dlqId !== undefined });
  const cause = own.data?.groups[0]?.cause;
  const all = useRead(route, { query: { cause } }, { every: pace.slow, enabled: cause !== undefined });
  if (!all.data || cause === undefined) return null;
  const [same] = all.data.groups;
  return {
    count: Math.max(0, (same?.count ?? 1) - 1),
    isMinimum: same?.countIsMinimum === true,
    cause,
  };
}

type OthersProps = { others: OthersCount | null; resumeAll(filter: Filter): void };

// The line is there from the beginning, as high as with its button, so that nothing moves.
function Others({ others, resumeAll }: OthersProps) {
  const may = useMay();
  if (others === null) {
    return (
      <p className="others" aria-hidden="true">
        …
      </p>
    );
  }
  const { count, isMinimum, cause } = others;
  if (count === 0) return <p className="others">No other run failed here with this error.</p>;
  return (
    <p className="others">
      <span>
        <PageLink className="link" to="/failed-runs" search={{ cause }}>
          {formatMany(count, "other run")}
          {isMinimum && " or more"}
        </PageLink>{" "}
        failed here with this error.
      </span>
      {may.manage && (
        <Button isSmall icon={Play} onClick={() => resumeAll({ cause })}>
          Resume all {formatCount(count + 1)}
          {isMinimum && "+"}
        </Button>
      )}
    </p>
  );
}
