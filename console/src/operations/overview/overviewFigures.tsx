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

/** The names of gates of each kind: of one, of others, and of one whose name is not known. */
const gateNames = {
  queue: { one: "Queue", others: "other queues", unknown: "Queues" },
  key: { one: "Key", others: "other keys", unknown: "Keys" },
  endpoint: { one: "Account limit for", others: "other endpoints", unknown: "Account limit, per endpoint" },
  account: { one: "Account limit", others: "", unknown: "Account limit" },
  capacity: {
    one: "Server capacity or puller for",
    others: "other hosts",
    unknown: "Server capacity, or no puller",
  },
} as const;
type GateKind = keyof typeof gateNames;

const describeOldest = (at: number | undefined, now: number): string =>
  at === undefined ? "" : `oldest: ${formatSpan(now - at)}`;

/** Returns the page of a gate. */
function findGatePlace(kind: GateKind, name: string): { to: string; search: Record<string, string> } {
  if (kind === "queue") return { to: `/queues/${encodeURIComponent(name)}`, search: {} };
  if (kind === "key") return { to: "/keys", search: { search: name, open: name } };
  if (kind === "capacity" && name !== "") return { to: `/hosts/${encodeURIComponent(name)}`, search: {} };
  return { to: "/messages", search: { gate: kind } };
}

/** Returns the gates of a kind that hold most, by name, and the others together. */
function listGates(
  kind: GateKind,
  { count, oldestAt, largest = [] }: Overview["held"][GateKind],
  now: number,
) {
  const names = gateNames[kind];
  const fill = "f-gate";
  const oldest = describeOldest(oldestAt, now);
  const isAlone = largest.length === 1;
  const named = largest.map(({ name, count: value, paused }) => ({
    ...{ name: `${names.one} ${name}`.trim(), to: findGatePlace(kind, name), value, fill },
    sub: [
      kind === "queue" || kind === "key" ? (paused ? "paused" : "at capacity") : "",
      isAlone ? oldest : "",
    ]
      .filter(Boolean)
      .join(", "),
  }));
  const rest = count - named.reduce((sum, { value }) => sum + value, 0);
  return rest <= 0
    ? named
    : [
        ...named,
        {
          ...{ name: named.length > 0 ? names.others : names.unknown, value: rest, fill, sub: "" },
          to: { to: "/messages", search: { gate: kind } },
        },
      ];
}

function Held({ held }: { held: Overview["held"] }) {
  const now = Date.now();
  const entries = (Object.keys(gateNames) as GateKind[])
    .filter((kind) => held[kind].count > 0)
    .flatMap((kind) => listGates(kind, held[kind], now))
    .toSorted((one, other) => other.value - one.value);
  return (
    <Panel
      title="Held messages, by gate"
      className="w4 x3"
      end={
        <PageLink className="link" to="/messages" search={{ state: "held" }}>
          {formatCount(entries.reduce((total, { value }) => total + value, 0))}
        </PageLink>
      }
    >
      {entries.length === 0 ? (
        <Empty title="No held messages" />
      ) : (
        <div className="body">
          <Bars entries={entries} />
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
