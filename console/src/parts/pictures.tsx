import { formatCount } from "./words.ts";

/** A ranking: each entry with a bar of its share of the largest. */
export type Ranked = {
  name: string;
  sub?: string;
  value: number;
  text?: string;
  fill: string;
  share?: number;
};

/** Entries with bars, the numbers beside them. */
export function Bars({ entries }: { entries: readonly Ranked[] }) {
  const most = Math.max(1, ...entries.map(({ value }) => value));
  return (
    <ul className="bars">
      {entries.map(({ name, sub, value, text, fill, share }) => (
        <li key={`${name} ${sub}`}>
          <span className="ellipsis">
            <b>{name}</b> {sub && <span className="sub">{sub}</span>}
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
