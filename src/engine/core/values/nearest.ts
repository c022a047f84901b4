/**
 * Returns the known name that a misspelt one probably means, or null. The names may differ in at most a third
 * of the characters, or in one character of a short name.
 */
export function findNearest(name: string, known: readonly string[]): string | null {
  if (name.length > 64) return null;
  const ranked = known
    .map((other) => ({ other, distance: countEdits(name, other) }))
    .sort((a, b) => a.distance - b.distance);
  const [best] = ranked;
  return best && best.distance <= Math.max(1, Math.floor(name.length / 3)) ? best.other : null;
}

/**
 * Returns the number of characters to insert, remove, replace or swap with their neighbours to turn one text
 * into the other (optimal string alignment).
 */
function countEdits(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, at) => at);
  let rowBefore = row;
  for (let line = 0; line < from.length; line++) {
    const character = from[line];
    const next = [line + 1];
    for (let at = 0; at < to.length; at++) {
      const changed = Math.min(
        (next[at] ?? 0) + 1,
        (row[at + 1] ?? 0) + 1,
        (row[at] ?? 0) + (to[at] === character ? 0 : 1),
      );
      const isSwap = line > 0 && at > 0 && to[at - 1] === character && to[at] === from[line - 1];
      next.push(isSwap ? Math.min(changed, (rowBefore[at - 1] ?? 0) + 1) : changed);
    }
    rowBefore = row;
    row = next;
  }
  return row[to.length] ?? 0;
}
