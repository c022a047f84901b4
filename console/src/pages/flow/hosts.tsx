import type { Response } from "../../api/client.ts";
import { useNavigate } from "@tanstack/react-router";
import { useRead } from "../../api/queries.ts";
import type { StateName } from "../../parts/stateName.ts";
import { Time, useNow } from "../../parts/basics.tsx";
import { PublishLink } from "../../parts/link.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { Visible } from "../../parts/visible.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Table } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatCount, formatMany, formatSpan } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";

/** A host, as the overview and the list show it. */
export type Host = Response<"GET /v2/hosts">["hosts"][number];

/** The hosts that messages go to: errors, how fast they answer, and what waits for them. */
export function HostsPage() {
  const hosts = useRead("GET /v2/hosts");
  const navigate = useNavigate();
  return (
    <Page title="Hosts" count={hosts.data && formatMany(hosts.data.hosts.length, "host")}>
      <Loaded query={hosts} what="The hosts">
        {({ hosts: rows }) => (
          <Panel>
            {rows.length === 0 ? (
              <Empty title="No recent deliveries" actions={<PublishLink />}>
                <p>A host appears here after its first delivery.</p>
              </Empty>
            ) : (
              <Table
                label="Hosts"
                className="two cards"
                columns={columns}
                rows={rows}
                keyOf={({ host }) => host}
                open={({ host }) => void navigate({ to: `/hosts/${encodeURIComponent(host)}` })}
              />
            )}
          </Panel>
        )}
      </Loaded>
    </Page>
  );
}

/** Returns a share as a percentage. */
export const formatShare = (share: number): string =>
  `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

/** The class of a share of failures: red where most fail, amber where some do. */
export const shareClass = (share: number): string =>
  share >= 0.5 ? "code-bad" : share >= 0.02 ? "code-warn" : "";

/** How each state of a host is shown. */
export const hostStates: Readonly<Record<Host["state"], { state: StateName; word: string; about: string }>> =
  {
    failing: { state: "failed", word: "Failing", about: "It accepts hardly any messages." },
    hanging: { state: "failed", word: "Hanging", about: "It answers none of the attempts in flight." },
    unstable: { state: "retrying", word: "Unstable", about: "Some attempts fail." },
    healthy: { state: "delivered", word: "Healthy", about: "It accepts its messages." },
    unknown: { state: "pending", word: "No data", about: "No attempt has ended lately." },
  };

/** How long something has lasted. */
const Elapsed = ({ since }: { since: number }) => <span>{formatSpan(useNow() - since)}</span>;

const columns: readonly Column<Host>[] = [
  {
    head: "State",
    className: "c-state w-state",
    cell: ({ state }) => <State {...hostStates[state]} />,
  },
  {
    head: "Host",
    className: "c-what",
    cell: ({ host, lastFailure }) => (
      <>
        <div className="l1">
          <span className="t host">
            <Visible text={host} />
          </span>
        </div>
        <div className="l2">
          {lastFailure && (
            <span className="t">
              last failure{lastFailure.responseStatus !== undefined && ` ${lastFailure.responseStatus}`}
              {lastFailure.error !== undefined && (
                <>
                  {" "}
                  <Visible text={lastFailure.error.slice(0, 120)} />
                </>
              )}
              , <Time at={lastFailure.time} />
            </span>
          )}
        </div>
      </>
    ),
  },
  {
    head: "Errors",
    className: "num c-when w-s",
    cell: ({ failureShare }) =>
      failureShare === undefined ? (
        ""
      ) : (
        <span className={shareClass(failureShare)}>{formatShare(failureShare)}</span>
      ),
  },
  { head: "p50", className: "num p2 w-s", cell: ({ p50 }) => (p50 === undefined ? "" : formatSpan(p50)) },
  { head: "p95", className: "num p1 w-s", cell: ({ p95 }) => (p95 === undefined ? "" : formatSpan(p95)) },
  { head: "In flight", className: "num p3 w-s", cell: ({ inFlight = 0 }) => formatCount(inFlight) },
  {
    head: "Oldest",
    className: "num p2 w-s",
    cell: ({ oldestStart }) => (oldestStart === undefined ? "" : <Elapsed since={oldestStart} />),
  },
  { head: "Waiting", className: "num p3 w-s", cell: ({ waiting }) => formatCount(waiting) },
];
