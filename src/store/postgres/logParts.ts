import type { Client } from "pg";
import { birthOf, firstIdAt } from "../../core/values/ids.ts";
import type { Millis } from "../../core/model/message.ts";
import { codeOf, plainly } from "./session.ts";

/** A part of the log is a day of it, so there are some more parts than days that are kept. */
export const day: Millis = 24 * 60 * 60 * 1000;

/** The ids from the first one of a time to before the first one of another. */
export type Part = { name: string; from: Millis; to: Millis };

/** Who changes which parts there are needs the log for himself for a moment. While others read long, as a backup does, it is for another time. */
export const patience: Millis = 200;

/** Others had it locked for longer than was waited. */
export const isLocked = (error: unknown): boolean => codeOf(error) === "55P03";

/** A row found no part that it could be in. */
export const isWithoutPart = (error: unknown): boolean =>
  codeOf(error) === "23514" && error instanceof Error && "routine" in error && error.routine === "ExecFindPartition";

/** All parts, in no order. */
export async function partsOf(client: Client): Promise<Part[]> {
  const found = await plainly(
    client,
    `select relname as name, pg_get_expr(relpartbound, pg_class.oid) as bounds
      from pg_inherits join pg_class on pg_class.oid = inhrelid where inhparent = 'log'::regclass`,
  );
  return found.map(({ name, bounds }) => {
    const [, from = "", to = ""] = /FROM \('([^']*)'\) TO \('([^']*)'\)/.exec(String(bounds)) ?? [];
    return { name: String(name), from: birthOf(from), to: birthOf(to) };
  });
}

/** Makes those parts for these times that are not there. Answers all parts. */
export async function makeParts(client: Client, times: readonly Millis[]): Promise<Part[]> {
  const present = await partsOf(client);
  const missing = [...new Set(times.map((time) => Math.floor(time / day) * day))]
    .filter((from) => !present.some((part) => part.from <= from && from < part.to))
    .map((from) => ({ name: `log_day_${from / day}`, from, to: from + day }));
  for (const part of missing) await plainly(client, made(part));
  return [...present, ...missing];
}

/** The same for rows that come from elsewhere, and may be of any time. */
export async function makeRoomFor(client: Client, ids: readonly string[]): Promise<void> {
  await makeParts(client, ids.map(birthOf).filter(Number.isFinite));
}

/** A table that becomes a part takes no lock that would stop those who write; one that is made as a part would. */
const made = ({ name, from, to }: Part): string =>
  `create table ${name} (like log including all); ` +
  `alter table log attach partition ${name} for values from ('${firstIdAt("log", from)}') to ('${firstIdAt("log", to)}')`;

/** How far parts reach from a time, without a gap. */
export function roomAround(now: Millis, parts: readonly Part[]): { from: Millis; to: Millis } {
  const here = parts.find(({ from, to }) => from <= now && now < to);
  if (!here) throw new Error(`the log has no part for the time ${now}`);
  let { to } = here;
  for (let next: Part | undefined = here; next; next = parts.find(({ from }) => from === to)) to = next.to;
  return { from: here.from, to };
}
