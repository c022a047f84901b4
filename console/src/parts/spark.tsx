import { formatCount } from "./words.ts";

/** How often something happened in each part of a time, the oldest first. */
export function Spark({ counts }: { counts: readonly number[] }) {
  const most = Math.max(1, ...counts);
  const sum = counts.reduce((all, count) => all + count, 0);
  return (
    <svg
      className="spark"
      viewBox={`0 0 ${4 * counts.length} 20`}
      preserveAspectRatio="none"
      role="img"
      aria-label={`${formatCount(sum)} in the last 24 hours`}
    >
      <path className="f-line" d={`M0 19.5h${4 * counts.length}v.5h-${4 * counts.length}z`} />
      {counts.map((count, at) => {
        const height = count === 0 ? 0 : Math.max(1.5, (20 * count) / most);
        return <rect key={at} className="f-bad" x={4 * at} y={20 - height} width={3} height={height} />;
      })}
    </svg>
  );
}
