import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { pace, useRead } from "../../api/queries.ts";
import { Time } from "../../parts/basics.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import type { Series } from "../../parts/pictures.tsx";
import { Chart, Legend } from "../../parts/pictures.tsx";
import { pickShown } from "./figures.ts";
import { Visible } from "../../parts/visible.tsx";

type Activity = Response<"GET /v2/activity">;

/** The periods that a person can choose, and their names. */
const periods: readonly (readonly [value: string, name: string])[] = [
  ["1h", "1 hour"],
  ["3h", "3 hours"],
  ["12h", "12 hours"],
  ["1d", "1 day"],
  ["3d", "3 days"],
  ["7d", "7 days"],
  ["30d", "30 days"],
];

/** The period that is shown first. */
export const firstPeriod = "1h";

const day = 24 * 60 * 60_000;
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const dayAndClock = new Intl.DateTimeFormat("en-GB", {
  ...{ day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit" },
});

/** The outcomes of messages over time, with marks for pauses, changes and starts of servers. */
export function ActivityPanel() {
  const [period, setPeriod] = useState(firstPeriod);
  const activity = useRead("GET /v2/activity", { query: { period } }, { every: pace.slow });
  const series = activity.data ? listSeries(activity.data) : [];
  return (
    <Panel
      title="Messages over time"
      className="w8 x6"
      end={
        <>
          <Legend series={series} />
          <select
            className="input order"
            aria-label="Period"
            value={period}
            onChange={({ target }) => setPeriod(target.value)}
          >
            {periods.map(([value, name]) => (
              <option key={value} value={value}>
                {name}
              </option>
            ))}
          </select>
        </>
      }
    >
      <Loaded query={activity} what="The messages over time" rows={4}>
        {(data) => <ActivityChart data={data} series={series} />}
      </Loaded>
    </Panel>
  );
}

function listSeries({ points }: Activity): Series[] {
  const pick = (name: "delivered" | "failed" | "retried"): number[] =>
    pickShown(points).map((one) => one[name] ?? 0);
  return [
    { name: "delivered", kind: "area", fill: "f-move", dot: "move", values: pick("delivered") },
    { name: "failed", kind: "bar", fill: "f-bad", dot: "bad", values: pick("failed") },
    { name: "retried", kind: "bar", fill: "f-warn", dot: "warn", values: pick("retried") },
  ];
}

/** Returns how long attempts took. It has a gap where no attempt ended. */
const listDurations = ({ points }: Activity): Series[] => [
  {
    ...{ name: "p95", kind: "area", fill: "f-move", dot: "move" },
    values: pickShown(points).map(({ p95 = null }) => p95),
  },
];

/** The marks that are listed below the chart. */
const shownMarks = 4;

function ActivityChart({ data, series }: { data: Activity; series: Series[] }) {
  const { points, marks, step } = data;
  const shown = pickShown(points);
  const from = shown[0]?.start ?? 0;
  const span = step * shown.length;
  const format = span > day ? dayAndClock : clock;
  const times = shown.map(({ start }) => format.format(start));
  const drawn = marks.map(({ time, kind, text }) => ({ part: (time - from) / span, kind, text }));
  const durations = listDurations(data);
  return (
    <div className="body">
      <Chart
        label="Delivered, failed and retried messages over time"
        series={series}
        times={times}
        marks={drawn}
      />
      {durations.some(({ values }) => values.some((value) => value !== null)) && (
        <>
          <h3>p95 of the duration of attempts, in ms</h3>
          <Chart label="Duration of attempts over time" series={durations} times={times} marks={drawn} />
        </>
      )}
      {marks.length > 0 && (
        <ul className="marks" aria-label="Changes">
          {marks.slice(-shownMarks).map(({ time, text }) => (
            <li key={`${time} ${text}`}>
              <Time at={time} /> <Visible text={text} />
            </li>
          ))}
          {marks.length > shownMarks && <li>{marks.length - shownMarks} earlier</li>}
        </ul>
      )}
    </div>
  );
}
