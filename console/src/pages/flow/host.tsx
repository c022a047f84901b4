import { useParams } from "@tanstack/react-router";
import { ChevronRight, RotateCw } from "lucide-react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { ConfirmButton } from "../../parts/actions.tsx";
import { Icon, Time, useNow } from "../../parts/basics.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import type { Series } from "../../parts/pictures.tsx";
import { Chart, Legend } from "../../parts/pictures.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Table } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatCount, formatMany, formatSpan } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { EndAttempt } from "../messages/help.tsx";
import { formatShare, hostStates, shareClass } from "./hosts.tsx";

type Host = Response<"GET /v2/hosts/{host}">;
type Running = Host["running"][number];

/** One host: how it responds, what waits for it, and what is being sent to it now. */
export function HostPage() {
  const { name = "" } = useParams({ strict: false });
  const host = useRead("GET /v2/hosts/{host}", { params: { host: name } });
  return (
    <Page
      title={name}
      crumbs={
        <>
          <PageLink to="/hosts">Hosts</PageLink>
          <Icon of={ChevronRight} />
        </>
      }
    >
      <Loaded query={host} what={`Host ${name}`}>
        {(data) => (
          <>
            <HostHead host={data} />
            <HostNumbers host={data} />
            <OverTime host={data} />
            <InFlight host={data} />
          </>
        )}
      </Loaded>
    </Page>
  );
}

function HostHead({ host }: { host: Host }) {
  const { state, word, about } = hostStates[host.state];
  const count = host.running.length;
  const end = (): Promise<unknown> =>
    send("POST /v2/hosts/{host}/end-attempts", {
      params: { host: host.host },
      query: { startedBefore: host.at },
    });
  return (
    <section className="hero">
      <div className="line">
        <State state={state} word={word} isPill />
        <span className="muted">
          {about}
          {host.lastFailure && (
            <>
              {" "}
              Last failure {host.lastFailure.responseStatus ?? ""}{" "}
              <Visible text={(host.lastFailure.error ?? "").slice(0, 120)} />{" "}
              <Time at={host.lastFailure.time} />.
            </>
          )}
        </span>
        <div className="actions">
          <PageLink className="btn" to="/messages" search={{ view: "log", host: host.host }}>
            Log
          </PageLink>
          {count > 0 && (
            <ConfirmButton
              title={`End attempts to ${host.host}`}
              verb="End attempts and retry"
              text="End attempts and retry"
              icon={RotateCw}
              act={end}
              isLarge
            >
              <p>
                {formatMany(host.inFlight ?? count, "connection")} to this host close, and the messages are
                sent again after their retry delay. No retry is used up. The host may have received the
                messages.
              </p>
            </ConfirmButton>
          )}
        </div>
      </div>
    </section>
  );
}

function HostNumbers({ host }: { host: Host }) {
  const now = useNow();
  const { failureShare, p50, p95, inFlight, oldestStart, waiting, attempts = 0 } = host;
  return (
    <section className="stats" aria-label="Numbers of the host">
      <Stat
        name="Errors"
        value={failureShare === undefined ? "unknown" : formatShare(failureShare)}
        className={shareClass(failureShare ?? 0)}
        about={attempts === 0 ? "no attempt has ended lately" : `of ${formatMany(attempts, "attempt")}`}
      />
      <Stat
        name="Latency"
        value={p50 === undefined ? "unknown" : formatSpan(p50)}
        about={p95 === undefined ? "p50" : `p50; p95 is ${formatSpan(p95)}`}
      />
      <Stat
        name="In flight"
        value={inFlight === undefined ? "unknown" : formatCount(inFlight)}
        about={oldestStart === undefined ? "none" : `the oldest for ${formatSpan(now - oldestStart)}`}
      />
      <Stat name="Waiting" value={formatCount(waiting)} about="for delivery capacity or a puller" />
    </section>
  );
}

type StatProps = { name: string; value: string; about: string; className?: string };

const Stat = ({ name, value, about, className = "" }: StatProps) => (
  <div className="stat">
    <span className="k">{name}</span>
    <span className={`v ${className}`}>{value}</span>
    <span className="d">{about}</span>
  </div>
);

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

function OverTime({ host: { minutes: all, completeFrom } }: { host: Host }) {
  const minutes = all.slice(0, -1).filter(({ start }) => start >= (completeFrom ?? 0));
  const times = minutes.map(({ start }) => clock.format(start));
  const ended: Series[] = [
    {
      ...{ name: "accepted", kind: "area", fill: "f-move", dot: "move" },
      values: minutes.map(({ attempts, failures }) => attempts - failures),
    },
    {
      name: "failed",
      kind: "bar",
      fill: "f-bad",
      dot: "bad",
      values: minutes.map(({ failures }) => failures),
    },
  ];
  const inFlight: Series[] = [
    {
      ...{ name: "in flight", kind: "area", fill: "f-move", dot: "move" },
      values: minutes.map((one) => one.inFlight),
    },
  ];
  const latency: Series[] = [
    {
      ...{ name: "p95", kind: "area", fill: "f-warn", dot: "warn" },
      values: minutes.map(({ p95 = null }) => p95),
    },
    {
      ...{ name: "p50", kind: "area", fill: "f-move", dot: "move" },
      values: minutes.map(({ p50 = null }) => p50),
    },
  ];
  const span = `in the last ${formatMany(minutes.length, "minute")}`;
  return (
    <div className="grid">
      <Panel title="Attempts per minute" className="w4" end={<Legend series={ended} />}>
        <div className="body">
          <Chart label={`Attempts ${span}`} series={ended} times={times} />
        </div>
      </Panel>
      <Panel title="Latency, in ms" className="w4" end={<Legend series={latency} />}>
        <div className="body">
          <Chart label={`Latency in milliseconds ${span}`} series={latency} times={times} />
        </div>
      </Panel>
      <Panel title="In flight" className="w4" end={<Legend series={inFlight} />}>
        <div className="body">
          <Chart label={`Attempts in flight ${span}`} series={inFlight} times={times} />
        </div>
      </Panel>
    </div>
  );
}

function InFlight({ host: { running, inFlight } }: { host: Host }) {
  return (
    <Panel
      title="Being sent"
      sub={
        inFlight !== undefined && inFlight > running.length
          ? `the ${running.length} longest attempts`
          : "the longest first"
      }
    >
      {running.length === 0 ? (
        <Empty title="Nothing is being sent to this host" />
      ) : (
        <Table
          label="Attempts in flight"
          className="two cards"
          columns={columns}
          rows={running}
          keyOf={({ messageId }) => messageId}
        />
      )}
    </Panel>
  );
}

function Sent({ since, timeoutAt, ending }: Running) {
  const now = useNow();
  if (ending) return <>Its connection is being closed</>;
  return (
    <>
      <div className="l1">
        {since !== undefined && (
          <span className="t">
            Being sent since <Time at={since} as="clock" /> ({formatSpan(now - since)})
          </span>
        )}
      </div>
      <div className="l2">
        {timeoutAt !== undefined && (
          <span className="t">
            timeout at <Time at={timeoutAt} as="clock" />
          </span>
        )}
      </div>
    </>
  );
}

const columns: readonly Column<Running>[] = [
  {
    head: "Message",
    className: "c-what",
    cell: (running) => (
      <>
        <div className="l1">
          <PageLink className="link id" to="/messages" search={{ open: running.messageId }}>
            {running.messageId}
          </PageLink>
        </div>
        <div className="l2">
          <span className="t">
            <Visible text={running.url ?? ""} />
          </span>
        </div>
      </>
    ),
  },
  { head: "Since", className: "c-why", cell: (running) => <Sent {...running} /> },
  { head: "Attempt", className: "num p2 w-s", cell: ({ attempt }) => formatCount(attempt + 1) },
  { head: "Queue", className: "p3 w-where", cell: ({ queueName = "" }) => <Visible text={queueName} /> },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-actions",
    cell: ({ messageId, attempt, ending }) =>
      ending ? null : <EndAttempt id={messageId} attempt={attempt} />,
  },
];
