import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Costs } from "./costs.ts";

/**
 * The costs of a message or a step, in the form of `bench/ledger.json`. `statements` has the number of
 * statements and of rows. The other names are those of `Costs`.
 */
export type LedgerCosts = Omit<Costs, "statements" | "rows"> & {
  statements: Record<string, [statements: number, rows: number]>;
};

/** The costs of a load, and the reason for the last change of them. */
export type LedgerRow = { why: string; costs: LedgerCosts };

/** The names of the measured stores. */
export type LedgerStore = "sqlite" | "postgres";

/** The ledger of costs. `node` is the version of Node.js for which the allocated bytes hold. */
export type Ledger = { node: string } & Record<LedgerStore, Record<string, LedgerRow>>;

/** The path of the ledger. */
export const ledgerPath = fileURLToPath(new URL("../../bench/ledger.json", import.meta.url));

export const readLedger = (): Ledger => JSON.parse(readFileSync(ledgerPath, "utf8"));

/** Returns costs in the form of the ledger. */
export function toLedgerCosts({ statements, rows, ...others }: Costs): LedgerCosts {
  const entries = Object.entries(statements).map(
    ([name, count]) => [name, [count, rows[name] ?? 0]] as [string, [number, number]],
  );
  return { statements: Object.fromEntries(entries), ...others };
}

/**
 * The figures that depend a little on chance, and may differ by 5 %: which pieces of a response are joined,
 * and which objects Node.js creates by itself. Pages may differ by 15 %, and timers by one in a batch of 64.
 * All others must be equal.
 */
const approximate: ReadonlySet<string> = new Set(["pages", "socketWrites", "allocated", "logBytes"]);
const tolerance = 0.05;
/**
 * On a slow machine, the outcomes of a batch of 64 may reach the store in two portions, and it waits for each
 * portion. One message at a time has whole timers, which stay exact.
 */
const timerTolerance = 1 / 64;
/** The hash of a URL with a free port decides which pages a step splits. */
const pageTolerance = 0.15;

/** Returns the differences of the measured costs from the ledger, each as a line, or an empty list. */
export function compareCosts(
  recorded: LedgerCosts | undefined,
  measured: LedgerCosts,
  { comparesBytes }: { comparesBytes: boolean },
): string[] {
  const flat = (costs: LedgerCosts | undefined): Map<string, number> => {
    const { statements = {}, ...others } = costs ?? {};
    const counts = Object.entries(statements).flatMap(([name, [count, rows]]) => [
      [`statements "${name}"`, count] as const,
      [`rows of "${name}"`, rows] as const,
    ]);
    return new Map([...counts, ...Object.entries(others)]);
  };
  const before = flat(recorded);
  const now = flat(measured);
  return [...new Set([...before.keys(), ...now.keys()])].flatMap((name) => {
    const [was = 0, is = 0] = [before.get(name), now.get(name)];
    if (name === "allocated" && !comparesBytes) return [];
    return Math.abs(is - was) <= toleranceOf(name, was) ? [] : [`${name}: ${was} in the ledger, ${is} now`];
  });
}

function toleranceOf(name: string, was: number): number {
  if (name === "timers") return timerTolerance;
  if (!approximate.has(name)) return 0;
  return was * (name === "pages" ? pageTolerance : tolerance);
}

/** Returns the rows whose costs differ from those of an earlier ledger, but whose reason is the same. */
export function listRowsWithoutReason(earlier: Ledger, now: Ledger): string[] {
  return (["sqlite", "postgres"] as const).flatMap((store) =>
    Object.entries(now[store]).flatMap(([load, row]) => {
      const before = earlier[store]?.[load];
      const isChanged = before && JSON.stringify(before.costs) !== JSON.stringify(row.costs);
      return isChanged && before.why === row.why ? [`${store}, ${load}`] : [];
    }),
  );
}
