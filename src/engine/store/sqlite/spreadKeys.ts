import type { Value } from "../layout/table.ts";

type Key = readonly Value[];

/**
 * Returns at most `count` keys between two keys of a table, at equal distances. Only the first column in
 * which the keys differ is changed; the columns after it are empty. A key need not exist.
 */
export function spreadKeys(first: Key, last: Key, count: number): Value[][] {
  const at = first.findIndex((value, index) => value !== last[index]);
  if (at === -1) return [];
  const from = first[at];
  const to = last[at];
  const spread = typeof from === "number" && typeof to === "number" ? spreadNumbers : spreadTexts;
  const values = spread(from as never, to as never, count);
  return values.map((value) => first.map((same, index) => (index < at ? same : index === at ? value : "")));
}

const spreadNumbers = (from: number, to: number, count: number): number[] =>
  Array.from({ length: count }, (_, index) => Math.floor(from + ((to - from) * (index + 1)) / (count + 1)));

/** The characters of keys are ASCII; others count as the last one. Three of them are enough for a sample. */
const digits = 3;
const base = 128;

function spreadTexts(from: unknown, to: unknown, count: number): string[] {
  const [low, high] = [String(from), String(to)];
  let same = 0;
  while (same < low.length && low[same] === high[same]) same++;
  const toNumber = (text: string): number =>
    Array.from({ length: digits }, (_, index) =>
      Math.min(text.charCodeAt(same + index) || 0, base - 1),
    ).reduce((sum, digit) => sum * base + digit, 0);
  const toText = (number: number): string =>
    String.fromCharCode(
      ...Array.from(
        { length: digits },
        (_, index) => Math.floor(number / base ** (digits - 1 - index)) % base,
      ),
    );
  return spreadNumbers(toNumber(low), toNumber(high), count).map(
    (number) => low.slice(0, same) + toText(number),
  );
}
