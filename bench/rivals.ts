/** Which rivals take part in a bench, and why others do not. */
import type { BenchResources } from "./benchResources.ts";

/** A rival that was asked for and does not take part, with the reason. */
export type LeftOut = { name: string; reason: string };

/** The option `--rivals`: names separated by commas, or `none`. */
export const rivalsOption = (names: readonly string[], more = ""): { default: string; help: string } => ({
  default: names.join(","),
  help: `rivals that take part, separated by commas, or none${more}`,
});

/** Reads `--rivals`. Throws if a name is unknown. */
export function readRivals<N extends string>(text: string, known: readonly N[]): N[] {
  if (text === "none") return [];
  return text.split(",").map((name) => {
    const rival = known.find((one) => one === name);
    if (rival === undefined)
      throw new Error(`--rivals: "${name}" is not a rival. Use ${known.join(", ")} or none.`);
    return rival;
  });
}

/** Starts rivals one after another. The bench continues without a rival that fails. */
export async function startRivals<N extends string, S>(
  resources: BenchResources,
  names: readonly N[],
  start: (name: N) => Promise<S>,
): Promise<{ started: S[]; leftOut: LeftOut[] }> {
  const started: S[] = [];
  const leftOut: LeftOut[] = [];
  for (const name of names) {
    try {
      started.push(await resources.attempt(() => start(name)));
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      const [reason = ""] = text.split("\n");
      leftOut.push({ name, reason });
      console.error(`${name} is left out: ${text}`);
    }
  }
  return { started, leftOut };
}

/** Returns one line for each rival that was left out. */
export const formatLeftOut = (leftOut: readonly LeftOut[]): string[] =>
  leftOut.map(({ name, reason }) => `${name} is left out: ${reason}`);
