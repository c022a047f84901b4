import type { Client } from "pg";
import { birthOf, firstIdAt } from "../../core/values/ids.ts";
import type { Millis } from "../../core/model/message.ts";
import { codeOf, plainly } from "./session.ts";
import { day } from "../../core/values/time.ts";

/**
 * A part of the log, usually one day: the ids from the first of one time to the first of another. The first one has no
 * beginning, and may have no end: then `endsAt` is the one that it is about to get, and it takes no rows from there on.
 */
export type Part = { name: string; from: Millis; to: Millis; endsAt: Millis | null };

/** What keeps rows out that come after the end that an open part is about to get. */
export const endOf = "log_end";

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
    `select relname as name, pg_get_expr(relpartbound, pg_class.oid) as bounds, pg_get_constraintdef(pg_constraint.oid) as limits
      from pg_inherits join pg_class on pg_class.oid = inhrelid
      left join pg_constraint on conrelid = pg_class.oid and conname = '${endOf}'
      where inhparent = 'log'::regclass`,
  );
  return found.map(({ name, bounds, limits }) => {
    const [, from, to] = /FROM \((?:MINVALUE|'([^']*)')\) TO \((?:MAXVALUE|'([^']*)')\)/.exec(String(bounds)) ?? [];
    const [, end] = /'([^']*)'/.exec(String(limits)) ?? [];
    return {
      name: String(name),
      from: birthOr(-Infinity, from),
      to: birthOr(Infinity, to),
      endsAt: end === undefined ? null : birthOf(end),
    };
  });
}

const birthOr = (other: Millis, id: string | undefined): Millis => (id === undefined ? other : birthOf(id));

/** Makes those parts for these times that are not there. Answers all parts. */
export async function makeParts(client: Client, times: readonly Millis[]): Promise<Part[]> {
  const present = await Promise.all((await partsOf(client)).map((part) => staysOpen(client, part, times)));
  const missing = [...new Set(times.map((time) => Math.floor(time / day) * day))]
    .filter((from) => !present.some((part) => part.from <= from && from < part.to))
    .map((from) => ({ name: `log_day_${from / day}`, from, to: from + day, endsAt: null }));
  for (const part of missing) await plainly(client, made(part));
  return [...present, ...missing];
}

/** The same for rows that come from elsewhere, and may be of any time. */
export async function makeRoomFor(client: Client, ids: readonly string[]): Promise<void> {
  await makeParts(client, ids.map(birthOf).filter(Number.isFinite));
}

/** Where an open part should have had its end by now, it gets none yet: rows come in that belong behind it. */
async function staysOpen(client: Client, part: Part, times: readonly Millis[]): Promise<Part> {
  const { name, endsAt } = part;
  if (endsAt === null || times.every((time) => time < endsAt)) return part;
  await plainly(client, `alter table ${name} drop constraint ${endOf}`);
  return { ...part, endsAt: null };
}

/** A table that becomes a part takes no lock that would stop those who write; one that is made as a part would. */
const made = ({ name, from, to }: Part): string =>
  `create table ${name} (like log including all); ` +
  `alter table log attach partition ${name} for values from ('${firstIdAt("log", from)}') to ('${firstIdAt("log", to)}')`;

/** How far parts reach from a time, without a gap. One without an end may get it in some days: that is looked at again in one. */
export function roomAround(now: Millis, parts: readonly Part[]): { from: Millis; to: Millis } {
  const here = parts.find(({ from, to }) => from <= now && now < to);
  if (!here) throw new Error(`the log has no part for the time ${now}`);
  let { to } = here;
  for (let next: Part | undefined = here; next; next = parts.find(({ from }) => from === to)) to = next.to;
  return { from: here.from, to: to === Infinity ? Math.min(here.endsAt ?? Infinity, now + day) : to };
}
