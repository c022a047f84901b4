import type { RandomCommand } from "../../engine/store/randomCommands.ts";

/** Returns a command that counts refused requests of an account. */
export function makeSeriesCommand(
  account: string,
  { now, part }: { now: number; part: number },
): RandomCommand {
  const minutes = [[Math.floor(now / 60_000), 1]] as const;
  const increment = { reason: "forbidden", firstAt: now, minutes, last: { at: now, address: null } };
  return {
    name: "addToAllSeries",
    input: { account, increments: [{ subject: `tok_${part}`, ...increment }] },
  };
}
