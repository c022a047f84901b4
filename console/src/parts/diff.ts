import { formatJson } from "./jsonText.ts";

/** A line of a string that was changed: kept, removed or added. */
export type DiffLine = { kind: "same" | "removed" | "added"; text: string };

/** The number of lines up to which a string is compared line by line. */
const maxLines = 400;

/** Returns the lines that two texts share, and those that only one of them has. JSON is formatted first. */
export function diffTexts(before: string, after: string): DiffLine[] {
  const [old, fresh] = [toLines(before), toLines(after)];
  if (old.length > maxLines || fresh.length > maxLines)
    return [...old.map((text) => removed(text)), ...fresh.map((text) => added(text))];
  return walk(old, fresh, measureCommon(old, fresh));
}

const removed = (text: string): DiffLine => ({ kind: "removed", text });
const added = (text: string): DiffLine => ({ kind: "added", text });

const toLines = (text: string): string[] =>
  formatJson(text)?.map(({ depth, tokens }) => "  ".repeat(depth) + tokens.map((one) => one.text).join("")) ??
  text.split("\n");

/** Returns for each pair of positions how many lines the rests of both texts have in common, in order. */
function measureCommon(old: readonly string[], fresh: readonly string[]): readonly (readonly number[])[] {
  const table = Array.from({ length: old.length + 1 }, () =>
    Array.from({ length: fresh.length + 1 }, () => 0),
  );
  for (let i = old.length - 1; i >= 0; i--)
    for (let j = fresh.length - 1; j >= 0; j--) {
      const [row, below] = [table[i], table[i + 1]];
      if (!row || !below) continue;
      row[j] = old[i] === fresh[j] ? 1 + (below[j + 1] ?? 0) : Math.max(below[j] ?? 0, row[j + 1] ?? 0);
    }
  return table;
}

function walk(
  old: readonly string[],
  fresh: readonly string[],
  common: readonly (readonly number[])[],
): DiffLine[] {
  const lines: DiffLine[] = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < fresh.length) {
    const [was, is] = [old[i], fresh[j]];
    if (was !== undefined && was === is) {
      lines.push({ kind: "same", text: was });
      i++;
      j++;
    } else if (
      was !== undefined &&
      (is === undefined || (common[i + 1]?.[j] ?? 0) >= (common[i]?.[j + 1] ?? 0))
    ) {
      lines.push(removed(was));
      i++;
    } else {
      lines.push(added(is ?? ""));
      j++;
    }
  }
  return lines;
}
