import { useEffect, useState } from "react";

/**
 * Keeps a list still while it is read again: rows change in place, and new ones wait until the person asks for
 * them. `resetKey` tells lists apart: another filter or page shows its rows at once.
 */
export function useSteady<Row>(
  fresh: readonly Row[] | undefined,
  keyOf: (row: Row) => string,
  resetKey: string,
): { rows: readonly Row[]; newCount: number; showNew(): void } {
  const [shown, setShown] = useState<{ resetKey: string; keys: ReadonlySet<string> } | null>(null);
  const isSame = shown?.resetKey === resetKey;
  useEffect(() => {
    if (fresh !== undefined && !isSame) setShown({ resetKey, keys: new Set(fresh.map(keyOf)) });
  });
  if (!fresh || !isSame) return { rows: fresh ?? [], newCount: 0, showNew: () => undefined };
  const rows = fresh.filter((row) => shown.keys.has(keyOf(row)));
  const newCount = fresh.length - rows.length;
  // A list that has become empty has nothing to keep still.
  const showNew = (): void => setShown({ resetKey, keys: new Set(fresh.map(keyOf)) });
  return rows.length === 0 ? { rows: fresh, newCount: 0, showNew } : { rows, newCount, showNew };
}
