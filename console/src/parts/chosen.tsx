import { useState } from "react";
import { useMay } from "../api/session.ts";
import { useFreeze } from "../shell/live.ts";
import { Button } from "./basics.tsx";
import type { Choice } from "./table.tsx";
import { formatCount } from "./words.ts";

/** The rows that a person has chosen on a page. `choice` is undefined if the session may not act. */
export type Chosen = { choice: Choice | undefined; ids: readonly string[]; clear(): void };

/**
 * Lets a person choose rows of a list. `list` tells lists apart: another filter or page begins with no chosen
 * row. The page is not read again while rows are chosen.
 */
export function useChosen(list: string): Chosen {
  const may = useMay();
  const [chosen, setChosen] = useState<{ list: string; keys: ReadonlySet<string> } | null>(null);
  const keys = chosen?.list === list ? chosen.keys : new Set<string>();
  useFreeze(keys.size > 0, "Paused: rows are chosen");
  const toggle = (key: string): void => {
    const next = new Set(keys);
    if (!next.delete(key)) next.add(key);
    setChosen({ list, keys: next });
  };
  return {
    choice: may.manage ? { keys, toggle } : undefined,
    ids: [...keys],
    clear: () => setChosen(null),
  };
}

type ActButtonProps = { chosen: Chosen; isActing: boolean; setActing(isActing: boolean): void };

/** The button that opens the bulk action: on the chosen rows, or else on all that match the filter. */
export function ActButton({ chosen: { ids, clear }, isActing, setActing }: ActButtonProps) {
  if (!useMay().manage) return null;
  return (
    <>
      {ids.length > 0 && (
        <Button isSmall kind="ghost" onClick={clear}>
          Clear choice
        </Button>
      )}
      <Button isSmall aria-pressed={isActing} onClick={() => setActing(!isActing)}>
        {ids.length > 0 ? `Act on ${formatCount(ids.length)} chosen` : "Act on all"}
      </Button>
    </>
  );
}
