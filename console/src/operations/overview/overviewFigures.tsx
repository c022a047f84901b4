import { useNavigate } from "@tanstack/react-router";
import type { Response } from "../../api/client.ts";
import { Time } from "../../parts/basics.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Panel } from "../../parts/panel.tsx";
import { Bars } from "../../parts/pictures.tsx";
import { Table } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatBytes, formatCount, formatSpan, noLimitFrom } from "../../parts/words.ts";
import { formatShare, shareClass } from "../../pages/flow/hosts.tsx";
import { Visible } from "../../parts/visible.tsx";
import { ActivityPanel } from "./activity.tsx";

type Overview = Response<"GET /v2/overview">;

/** The figures of the overview: the last minutes, held messages by gate, the worst hosts, and the storage. */
export const OverviewFigures = ({ data }: { data: Overview }) => (
  <>
    <Stats data={data} />
    <div className="grid">
      <ActivityPanel />
      <Held held={data.held} />
      <StorageUse data={data} />
      <WorstHosts
        hosts={data.worstHosts}
        isQuiet={sum(data.minutes, ({ delivered, failed }) => delivered + failed) === 0}
      />
    </div>
  </>
);

const sum = (minutes: Overview["minutes"], pick: (one: Overview["minutes"][number]) => number): number =>
  minutes.reduce((total, one) => total + pick(one), 0);

function Stats({ data }: { data: Overview }) {
  const { minutes, unfinished, inFlight, deadLetters, nextDueAt, runs } = data;
  return (
    <section className="stats" aria-label="Numbers">
      <Stat
        to="/messages"
        search={{ view: "DELIVERED" }}
        name="Delivered"
        value={formatCount(sum(minutes, ({ delivered }) => delivered))}
        about={`in the last ${minutes.length} minutes`}
      />
      <Stat
        to="/dead-letters"
        name="Dead letters"
        value={formatCount(deadLetters)}
        about="messages and runs"
        isBad={deadLetters > 0}
      />
      <Stat
        to="/messages"
        name="Unfinished"
        value={`${formatCount(unfinished.count)}${unfinished.more ? "+" : ""}`}
        about="waiting, or in flight"
      />
      <Stat
        to="/messages"
        search={{ state: "delivering" }}
        name="In flight"
        value={formatCount(inFlight)}
        about="being delivered now"
      />
      <Stat
        to="/runs"
        search={{ state: "RUN_STARTED" }}
        name="Runs"
        value={`${formatCount(runs.active.count)}${runs.active.more ? "+" : ""}`}
        about="not finished"
      />
      <div className="stat">
        <span className="k">Next due</span>
        <span className="v">{nextDueAt === undefined ? "none" : <Time at={nextDueAt} />}</span>
        <span className="d">earliest due time</span>
      </div>
    </section>
  );
}

type StatProps = {
  to: string;
  search?: Record<string, string>;
  name: string;
  value: string;
  about: string;
  isBad?: boolean;
};

const Stat = ({ to, search = {}, name, value, about, isBad = false }: StatProps) => (
  <PageLink className="stat" to={to} search={search}>
    <span className="k">{name}</span>
    <span className={`v ${isBad ? "bad" : ""}`}>{value}</span>
    <span className="d">{about}</span>
  </PageLink>
);

const gateNames = {
  queue: "Queue at capacity or paused",
  key: "Key at capacity or paused",
  endpoint: "Account limit, per endpoint",
  account: "Account limit",
  capacity: "Server capacity, or no puller",
} as const;

const describeOldest = (at: number | undefined, now: number): string =>
  at === undefined ? "" : `oldest: ${formatSpan(now - at)}`;

function Held({ held }: { held: Overview["held"] }) {
  const entries = (Object.keys(gateNames) as (keyof typeof gateNames)[])
    .filter((gate) => held[gate].count > 0)
    .toSorted((one, other) => held[other].count - held[one].count);
  const now = Date.now();
  return (
    <Panel
      title="Held messages, by gate"
      className="w4 x3"
      end={
        <PageLink className="link" to="/messages" search={{ state: "held" }}>
          {formatCount(entries.reduce((total, gate) => total + held[gate].count, 0))}
        </PageLink>
      }
    >
      {entries.length === 0 ? (
        <Empty title="No held messages" />
      ) : (
        <div className="body">
          <Bars
            entries={entries.map((gate) => ({
              name: gateNames[gate],
              to: { to: "/messages", search: { gate } },
              value: held[gate].count,
              fill: "f-gate",
              sub: describeOldest(held[gate].oldestAt, now),
            }))}
          />
        </div>
      )}
    </Panel>
  );
}

function WorstHosts({ hosts, isQuiet }: { hosts: Overview["worstHosts"]; isQuiet: boolean }) {
  const navigate = useNavigate();
  return (
    <Panel
      title="Slow and failing hosts"
      className="w8 x12"
      end={
        <PageLink className="link" to="/hosts">
          All hosts
        </PageLink>
      }
    >
      {hosts.length === 0 ? (
        <Empty title={isQuiet ? "No recent deliveries" : "No host fails"} />
      ) : (
        <Table
          label="Slow and failing hosts"
          rows={hosts.slice(0, 5)}
          keyOf={({ host }) => host}
          open={({ host }) => void navigate({ to: "/messages", search: { view: "log", host } })}
          columns={[
            { head: "Host", cell: ({ host }) => <Visible text={host} /> },
            {
              head: "Errors",
              className: "num w-s",
              cell: ({ failureShare: share }) =>
                share === undefined ? "" : <span className={shareClass(share)}>{formatShare(share)}</span>,
            },
            {
              head: "p50",
              className: "num p1 w-s",
              cell: ({ p50 }) => (p50 === undefined ? "" : formatSpan(p50)),
            },
            {
              head: "p95",
              className: "num w-s",
              cell: ({ p95 }) => (p95 === undefined ? "" : formatSpan(p95)),
            },
          ]}
        />
      )}
    </Panel>
  );
}

function StorageUse({ data: { storage, disk } }: { data: Overview }) {
  const needed = disk?.needed ?? 0;
  const isTight = disk !== undefined && disk.free < 2 * needed;
  const used = disk ? disk.total - disk.free : 0;
  const hasLimit = storage.max > 0 && storage.max < noLimitFrom;
  return (
    <Panel title="Storage" className="w4 x3 last">
      <div className="body">
        <Bars
          entries={[
            {
              name: "Stored",
              sub: hasLimit ? `of ${formatBytes(storage.max)}` : "no limit",
              value: storage.used,
              text: formatBytes(storage.used),
              fill: "f-idle",
              share: hasLimit ? storage.used / storage.max : 0,
            },
            ...(disk
              ? [
                  {
                    name: "Disk",
                    sub: `${formatBytes(disk.free)} free${isTight ? `, ${formatBytes(needed)} needed` : ""}`,
                    value: used,
                    text: formatShare(used / disk.total),
                    fill: used / disk.total > 0.9 ? "f-bad" : "f-idle",
                    share: used / disk.total,
                  },
                ]
              : []),
          ]}
        />
      </div>
    </Panel>
  );
}
