import type { Response } from "../../api/client.ts";
import { pace, useRead } from "../../api/queries.ts";
import { useSession } from "../../api/session.ts";
import { useFilters } from "../../parts/filters.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import type { Series } from "../../parts/pictures.tsx";
import { Chart, Legend } from "../../parts/pictures.tsx";
import { formatBytes, formatCount } from "../../parts/words.ts";

type Statistics = Response<"GET /v2/svc/stats/{id}">;

const periods = ["1h", "1d", "7d", "30d"] as const;
const names = { "1h": "1 hour", "1d": "1 day", "7d": "7 days", "30d": "30 days" } as const;
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const date = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** The usage of the account: messages by outcome, and what this month has used. */
export function Usage() {
  const { session } = useSession();
  const { values, set } = useFilters();
  const period = periods.find((one) => one === values["period"]) ?? "1d";
  const isShort = period === "1h" || period === "1d";
  const sent = { params: { id: session.account?.id ?? "" }, query: { period } };
  const found = useRead("GET /v2/svc/stats/{id}", sent, { every: pace.slow });
  return (
    <>
      <div className="seg" role="group" aria-label="Period">
        {periods.map((one) => (
          <button key={one} type="button" aria-pressed={one === period} onClick={() => set({ period: one })}>
            {names[one]}
          </button>
        ))}
      </div>
      <Loaded query={found} what="The usage">
        {(data) => (
          <>
            <Month of={data} />
            <Outcomes title="Messages" outcomes={data.daily_svc_messages} isShort={isShort} />
            <Outcomes
              title="Messages of workflows"
              outcomes={data.daily_workflow_messages}
              isShort={isShort}
            />
          </>
        )}
      </Loaded>
    </>
  );
}

const sum = (points: readonly { y: number }[]): number => points.reduce((total, { y }) => total + y, 0);

/** The usage of this month, in UTC. */
function Month({ of }: { of: Statistics }) {
  const requests = of.daily_requests;
  const figures = [
    ["Messages", formatCount(sum(requests)), "this month"],
    [
      "Messages of workflows",
      formatCount(requests.reduce((total, one) => total + one.workflow_message, 0)),
      "this month",
    ],
    ["Runs", formatCount(requests.reduce((total, one) => total + one.workflow_run, 0)), "this month"],
    ["Bodies", formatBytes(sum(of.daily_bandwidths)), "sent and received"],
    ["Storage", formatBytes(of.storage_bytes), "now"],
  ] as const;
  return (
    <section className="stats" aria-label="Usage of this month">
      {figures.map(([name, value, about]) => (
        <div key={name} className="stat">
          <span className="k">{name}</span>
          <span className="v">{value}</span>
          <span className="d">{about}</span>
        </div>
      ))}
    </section>
  );
}

const kinds = {
  delivered: { name: "delivered", kind: "area", fill: "f-move", dot: "move" },
  failed: { name: "failed", kind: "bar", fill: "f-bad", dot: "bad" },
  canceled: { name: "cancelled", kind: "bar", fill: "f-idle", dot: "idle" },
} as const;

type OutcomesProps = {
  title: string;
  outcomes: Statistics["daily_svc_messages"];
  isShort: boolean;
};

function Outcomes({ title, outcomes, isShort }: OutcomesProps) {
  const series = outcomes.map(({ id, data_points: points }): Series => ({
    ...kinds[id],
    values: points.map(({ y }) => y),
  }));
  const times = (outcomes[0]?.data_points ?? []).map(({ x }) => {
    const at = new Date(x.replace(/^(\S+) (\S+) .*$/, "$1T$2Z"));
    return isShort ? clock.format(at) : date.format(at);
  });
  return (
    <Panel title={title} end={<Legend series={series} />}>
      <div className="body">
        <Chart label={`${title} by outcome`} series={series} times={times} />
      </div>
    </Panel>
  );
}
