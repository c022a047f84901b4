import type { ReactNode } from "react";
import { useState } from "react";
import type { RouteName } from "../api/client.ts";
import { send, toPath } from "../api/client.ts";
import { useChange, useRead } from "../api/queries.ts";
import { useMay } from "../api/session.ts";
import { useFreeze } from "../shell/live.ts";
import { useToasts } from "../shell/toasts.tsx";
import { Button, Id } from "./basics.tsx";
import { Codes } from "./codes.tsx";
import { Confirm } from "./dialog.tsx";
import { Failed } from "./trouble.tsx";
import { formatCount, formatMany } from "./words.ts";

/** The routes that act on everything a filter selects, and that have a dry run. */
export type BulkRoute = Extract<
  RouteName,
  | "DELETE /v2/messages"
  | "DELETE /v2/dlq"
  | "POST /v2/dlq/retry"
  | "DELETE /v2/workflows/dlq"
  | "POST /v2/workflows/dlq/resume"
  | "POST /v2/workflows/dlq/restart"
  | "DELETE /v2/workflows/runs"
>;

type BulkProps = {
  route: BulkRoute;
  /** The filter that selects. It is the filter of the page, and never the rows that happen to be on it. */
  query: Readonly<Record<string, string | readonly string[] | undefined>>;
  verb: string;
  noun: string;
  /** What is lost or happens, for the confirmation. */
  consequence: string;
  isDangerous?: boolean;
  close(): void;
  children?: ReactNode;
};

/** Acts on all that a filter selects: first a dry run with its count and first ids, then the act. */
export function Bulk({
  route,
  query,
  verb,
  noun,
  consequence,
  isDangerous = false,
  close,
  children,
}: BulkProps) {
  const may = useMay();
  const { say } = useToasts();
  const [isAsking, setIsAsking] = useState(false);
  useFreeze(true, "Frozen while chosen");
  const dryRun = useRead(route, { query: { ...query, dryRun: true } }, { every: null });
  const act = useChange(() => actOnAll(route, query));
  const plan = dryRun.data && "dryRun" in dryRun.data ? dryRun.data : null;
  const count = plan?.count ?? 0;
  const counted = `${formatCount(count)}${plan?.more ? " or more" : ""}`;
  const run = async (): Promise<void> => {
    const done = await act.mutateAsync(undefined);
    say(`${verb}: ${formatMany(done, noun)}`);
    close();
  };
  return (
    <section
      className="bulk"
      aria-label={`${verb} ${noun}s`}
      onKeyDown={(event) => event.key === "Escape" && close()}
    >
      <header>
        <h2>
          {verb} {counted} {noun}s
        </h2>
        <span className="muted">by filter, not by page</span>
        {children}
      </header>
      {dryRun.error ? (
        <Failed what="The dry run" error={dryRun.error} />
      ) : (
        <div className="plan two">
          <div>
            <h3>Dry run</h3>
            <p>
              <b>{counted}</b> would change. {consequence}
            </p>
            <Sample ids={plan?.sample ?? []} />
          </div>
          <div>
            <h3>As code</h3>
            <Codes of={{ method: route.slice(0, route.indexOf(" ")), path: toPath(route, { query }) }} />
          </div>
        </div>
      )}
      <footer>
        <span className="only-wide">The audit log keeps who did it.</span>
        <span className="spring" />
        <Button kind="ghost" onClick={close}>
          Close
        </Button>
        {may.manage && (
          <Button
            kind={isDangerous ? "danger-fill" : "primary"}
            disabled={count === 0}
            onClick={() => setIsAsking(true)}
          >
            {verb} {counted}
          </Button>
        )}
      </footer>
      <Confirm
        title={`${verb} ${counted} ${noun}s`}
        verb={`${verb} ${counted}`}
        isOpen={isAsking}
        isDangerous={isDangerous}
        close={() => setIsAsking(false)}
        act={run}
        {...(isDangerous && count >= 100 && { typed: String(count) })}
      >
        <p>{consequence}</p>
      </Confirm>
    </section>
  );
}

/**
 * Repeats the request until it finds nothing more, because one request acts on a part. Entries that come later
 * do not count: a dead letter that fails again would otherwise be retried without end. Returns how many were
 * changed.
 */
async function actOnAll(route: BulkRoute, query: BulkProps["query"]): Promise<number> {
  const bounded = { toDate: String(Date.now()), ...query };
  let total = 0;
  for (;;) {
    const done = countDone(await send(route, { query: bounded }));
    total += done;
    if (done === 0) return total;
  }
}

/** Returns how many entries a request has changed. */
function countDone(answer: unknown): number {
  if (typeof answer !== "object" || answer === null) return 0;
  for (const name of ["cancelled", "deleted"]) {
    const value: unknown = Reflect.get(answer, name);
    if (typeof value === "number") return value;
  }
  const list: unknown = Reflect.get(answer, "responses") ?? Reflect.get(answer, "workflowRuns");
  return Array.isArray(list) ? list.length : 0;
}

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
