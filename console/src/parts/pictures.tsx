import { PageLink } from "./link.tsx";
import { formatCount } from "./words.ts";

/** A ranking: each entry with a bar of its share of the largest. */
export type Ranked = {
  name: string;
  sub?: string;
  /** The page of the entries that are counted. */
  to?: { to: string; search: Readonly<Record<string, string>> };
  value: number;
  text?: string;
  fill: string;
  share?: number;
};

/** Entries with their numbers and bars. */
export function Bars({ entries }: { entries: readonly Ranked[] }) {
  const most = Math.max(1, ...entries.map(({ value }) => value));
  return (
    <ul className="bars">
      {entries.map(({ name, sub, to, value, text, fill, share }) => (
        <li key={`${name} ${sub}`}>
          <span className="whole">
            <b>{to ? <PageLink {...to}>{name}</PageLink> : name}</b>{" "}
            {sub && <span className="sub">{sub}</span>}
          </span>
          <span className="n">{text ?? formatCount(value)}</span>
          <svg className="barline" aria-hidden="true">
            <rect className="f-track" width="100%" height="100%" />
            <rect
              className={fill}
              width={`${Math.max(1, Math.min(100, 100 * (share ?? value / most)))}%`}
              height="100%"
            />
          </svg>
        </li>
      ))}
    </ul>
  );
}

/**
 * A series of a chart: as an area with a line, or as bars, stacked on the bars before. An area has a gap where
 * its value is null, because nothing was measured.
 */
export type Series = {
  name: string;
  kind: "area" | "bar";
  fill: string;
  dot: string;
  values: readonly (number | null)[];
};

/** A mark at a part of the width, from 0 to 1: something changed then. */
export type ChartMark = { part: number; kind: string; text: string };

const height = 176;
const width = 960;

/**
 * A chart over time. It begins at the first value that is not 0. A table with the same numbers follows it for
 * a screen reader.
 */
export function Chart({
  label,
  series,
  times,
  marks = [],
}: {
  label: string;
  series: readonly Series[];
  times: readonly string[];
  marks?: readonly ChartMark[];
}) {
  const top = niceTop(Math.max(1, ...times.map((_, at) => Math.max(...sums(series, at)))));
  const ticks = [4, 3, 2, 1, 0].map((part) => (top * part) / 4);
  const labels = [0, 0.25, 0.5, 0.75, 1].map((part) => times[Math.round((times.length - 1) * part)] ?? "");
  return (
    <div className="chart">
      <div className="y" aria-hidden="true">
        {ticks.map((tick) => (
          <span key={tick}>{formatCount(tick)}</span>
        ))}
      </div>
      <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={label}>
        {ticks.map((tick) => (
          <path key={tick} className="ch-grid" d={`M0 ${height - (height * tick) / top}H${width}`} />
        ))}
        {series.map((one, index) => (
          <Drawn key={one.name} series={series} index={index} top={top} />
        ))}
        {marks.map(({ part, kind, text }, at) => (
          <path
            key={at}
            className={`ch-line dash ${kind === "pause" ? "warn" : "gate"}`}
            d={`M${(width * part).toFixed(1)} 0V${height}`}
          >
            <title>{text}</title>
          </path>
        ))}
      </svg>
      <div className="x" aria-hidden="true">
        {labels.map((text, at) => (
          <span key={at} className={at % 2 === 1 ? "only-wide" : undefined}>
            {text}
          </span>
        ))}
      </div>
      <ChartTable label={label} series={series} times={times} />
    </div>
  );
}

/** Returns a round number that is not below the largest value and can be divided by four. */
function niceTop(most: number): number {
  const unit = 10 ** Math.floor(Math.log10(most));
  const factor = [2, 4, 8, 20].find((one) => one * unit >= most) ?? 20;
  return Math.max(4, factor * unit);
}

/** Returns the heights at a time: of the area, and of the bars on each other. */
function sums(series: readonly Series[], at: number): number[] {
  const bars = series
    .filter(({ kind }) => kind === "bar")
    .reduce((sum, { values }) => sum + (values[at] ?? 0), 0);
  return [bars, ...series.filter(({ kind }) => kind === "area").map(({ values }) => values[at] ?? 0)];
}

/** Returns the index of the first value that is not 0. Returns 0 if there is none. */
const findBegin = (series: readonly Series[]): number =>
  Math.max(
    0,
    (series[0]?.values ?? []).findIndex((_, at) => series.some(({ values }) => (values[at] ?? 0) > 0)),
  );

/** Returns the stretches of values between gaps, from an index on. */
function listStretches(values: Series["values"], begin: number): { from: number; values: number[] }[] {
  const stretches: { from: number; values: number[] }[] = [];
  for (let at = begin; at < values.length; at++) {
    const value = values[at] ?? null;
    const last = stretches.at(-1);
    if (value === null) continue;
    if (last && last.from + last.values.length === at) last.values.push(value);
    else stretches.push({ from: at, values: [value] });
  }
  return stretches;
}

function Drawn({ series, index, top }: { series: readonly Series[]; index: number; top: number }) {
  const one = series[index];
  if (!one) return null;
  const toY = (value: number): number => height - (height * value) / top;
  const step = width / Math.max(1, one.values.length - (one.kind === "area" ? 1 : 0));
  if (one.kind === "area") {
    const begin = findBegin(series);
    const toX = (at: number): string => (at * step).toFixed(1);
    return listStretches(one.values, begin).map(({ from, values }) => {
      // A single value is a line of one step, because a point cannot be seen.
      const last = one.values.length - 1;
      const around =
        values.length === 1
          ? [Math.max(0, from - 0.5), Math.min(last, from + 0.5)]
          : values.map((_, at) => from + at);
      const line = around
        .map((at, index) => `${toX(at)} ${toY(values[index] ?? values[0] ?? 0).toFixed(1)}`)
        .join("L");
      return (
        <g key={from}>
          <path
            className={`ch-area ${one.dot}`}
            d={`M${line}L${toX(around.at(-1) ?? 0)} ${height}H${toX(around[0] ?? 0)}Z`}
          />
          <path className={`ch-line ${one.dot}`} d={`M${line}`} />
        </g>
      );
    });
  }
  const below = series.slice(0, index).filter(({ kind }) => kind === "bar");
  return one.values.map((given, at) => {
    const value = given ?? 0;
    const base = below.reduce((sum, { values }) => sum + (values[at] ?? 0), 0);
    return value === 0 ? null : (
      <rect
        key={at}
        className={one.fill}
        x={at * step + 1}
        width={Math.max(1, step - 2)}
        y={toY(base + value)}
        height={Math.max(1, (height * value) / top)}
      />
    );
  });
}

const ChartTable = ({
  label,
  series,
  times,
}: {
  label: string;
  series: readonly Series[];
  times: readonly string[];
}) => (
  <div className="vh">
    <table>
      <caption>{label}</caption>
      <thead>
        <tr>
          <th scope="col">Time</th>
          {series.map(({ name }) => (
            <th key={name} scope="col">
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {times.map((time, at) => (
          <tr key={at}>
            <th scope="row">{time}</th>
            {series.map(({ name, values }) => (
              <td key={name}>{values[at] ?? "none"}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  </div>
);

/** The names of the series of a chart. */
export const Legend = ({ series }: { series: readonly Series[] }) => (
  <ul className="legend">
    {series.map(({ name, dot }) => (
      <li key={name}>
        <span className={`dot ${dot}`} />
        {name}
      </li>
    ))}
  </ul>
);
