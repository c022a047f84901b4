import type { ReactNode } from "react";
import { useState } from "react";
import type { RouteName } from "../api/client.ts";
import { send, toPath } from "../api/client.ts";
import { useRead } from "../api/queries.ts";
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
  /** The effect of the action, shown before it starts. */
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
  const { say } = useToasts();
  const [isAsking, setIsAsking] = useState(false);
  useFreeze(true, "Paused: bulk action");
  const dryRun = useRead(route, { query: { ...query, dryRun: true } }, { every: null });
  const plan = dryRun.data && "dryRun" in dryRun.data ? dryRun.data : null;
  const count = plan?.count ?? 0;
  const counted = `${formatCount(count)}${plan?.more ? " or more" : ""}`;
  const button = `${verb} ${counted}`;
  const run = async (): Promise<void> => {
    const done = await actOnAll(route, query);
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
        <span className="muted">all that match the filter</span>
        {children}
      </header>
      {dryRun.error ? (
        <Failed what="The dry run" error={dryRun.error} />
      ) : (
        <DryRun route={route} query={query} ids={plan?.sample ?? []}>
          <b>{counted}</b> would change. {consequence}
        </DryRun>
      )}
      <Foot
        close={close}
        verb={button}
        isDangerous={isDangerous}
        isBlocked={count === 0}
        ask={() => setIsAsking(true)}
      />
      {isAsking && (
        <Confirm
          title={`${button} ${noun}s`}
          verb={button}
          isDangerous={isDangerous}
          close={() => setIsAsking(false)}
          act={run}
          {...(isDangerous && count >= 100 && { typed: String(count) })}
        >
          <p>{consequence}</p>
        </Confirm>
      )}
    </section>
  );
}

type DryRunProps = Pick<BulkProps, "route" | "query"> & { ids: readonly string[]; children: ReactNode };

const DryRun = ({ route, query, ids, children }: DryRunProps) => (
  <div className="plan two">
    <div>
      <h3>Dry run</h3>
      <p>{children}</p>
      <Sample ids={ids} />
    </div>
    <div>
      <h3>As code</h3>
      <Codes of={{ method: route.slice(0, route.indexOf(" ")), path: toPath(route, { query }) }} />
    </div>
  </div>
);

type FootProps = { verb: string; isDangerous: boolean; isBlocked: boolean; close(): void; ask(): void };

function Foot({ verb, isDangerous, isBlocked, close, ask }: FootProps) {
  const may = useMay();
  return (
    <footer>
      <span className="only-wide">The audit log records it.</span>
      <span className="spring" />
      <Button kind="ghost" onClick={close}>
        Close
      </Button>
      {may.manage && (
        <Button kind={isDangerous ? "danger-fill" : "primary"} disabled={isBlocked} onClick={ask}>
          {verb}
        </Button>
      )}
    </footer>
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
