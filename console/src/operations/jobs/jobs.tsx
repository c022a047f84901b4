import { useRead } from "../../api/queries.ts";
import { JobRow } from "./jobProgress.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatMany } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";

/** The jobs of the account, the newest first. */
export function JobsPage() {
  const found = useRead("GET /v2/jobs", {}, { every: 2_000 });
  return (
    <Page title="Jobs" count={found.data && formatMany(found.data.jobs.length, "job")}>
      <Loaded query={found} what="The jobs">
        {({ jobs }) =>
          jobs.length === 0 ? (
            <Panel>
              <Empty title="No jobs yet">
                <p>
                  A job does one action with many entries in the background. “Act on all” on a list starts
                  one.
                </p>
              </Empty>
            </Panel>
          ) : (
            <div className="panel divided">
              {jobs.map((job) => (
                <JobRow key={job.jobId} job={job} />
              ))}
            </div>
          )
        }
      </Loaded>
    </Page>
  );
}
