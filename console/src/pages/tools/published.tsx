import type { Response } from "../../api/client.ts";
import { PageLink } from "../../parts/link.tsx";
import { Visible } from "../../parts/visible.tsx";

/** The outcome for a draft. */
export type Result =
  | { kind: "message" | "run"; id: string; isDuplicate: boolean }
  | { kind: "schedule"; id: string }
  | { kind: "refused"; why: string };

/** Returns the results of a batch. A message to a URL group has one result for each endpoint. */
export const readBatch = (items: Response<"POST /v2/batch">): Result[] =>
  items
    .flatMap((item) => item)
    .map((item) =>
      "error" in item
        ? { kind: "refused", why: item.error }
        : { kind: "message", id: item.messageId, isDuplicate: item.deduplicated ?? false },
    );

/** Returns the results of started runs. */
export const readRuns = (runs: Response<"POST /v2/batch/trigger">): Result[] =>
  runs.map(({ workflowRunId, deduplicated = false }) => ({
    kind: "run",
    id: workflowRunId,
    isDuplicate: deduplicated,
  }));

const titles = {
  message: "Published",
  run: "The run is started",
  schedule: "The schedule is saved",
} as const;

/** The ids of what was published, with links. */
export function Published({ results }: { results: readonly Result[] }) {
  const [first] = results;
  if (!first) return null;
  const isBad = results.some(({ kind }) => kind === "refused");
  return (
    <section className={`callout ${isBad ? "bad" : "good"}`} role="status">
      <span />
      <div>
        <h3>{first.kind === "refused" ? "Refused" : titles[first.kind]}</h3>
        {results.map((result, at) => (
          <p key={at}>
            <One result={result} />
          </p>
        ))}
      </div>
    </section>
  );
}

function One({ result }: { result: Result }) {
  if (result.kind === "refused") return <Visible text={result.why} />;
  const { kind, id } = result;
  const to = { message: "/messages", run: `/runs/${encodeURIComponent(id)}`, schedule: "/schedules" }[kind];
  return (
    <>
      <PageLink className="link" to={to} search={kind === "run" ? {} : { open: id }}>
        <Visible text={id} />
      </PageLink>
      {"isDuplicate" in result && result.isDuplicate && " already existed, so nothing was stored"}
    </>
  );
}
