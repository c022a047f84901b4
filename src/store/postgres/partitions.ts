import type { Client } from "pg";
import { readIdTime, firstIdAt } from "../../core/values/ids.ts";
import type { Millis } from "../../core/model/message.ts";
import { readSqlState, runPlain } from "./session.ts";
import { day } from "../../core/values/time.ts";

/** The ids from the first one of a time to before the first one of another. */
export type Partition = { name: string; from: Millis; to: Millis };

/** Who changes which parts there are needs the log for himself for a moment. While others read long, as a backup does, it is for another time. */
export const lockTimeout: Millis = 200;

/** Others had it locked for longer than was waited. */
export const isLockTimeout = (error: unknown): boolean => readSqlState(error) === "55P03";

/** A row found no part that it could be in. */
export const isMissingPartition = (error: unknown): boolean =>
  readSqlState(error) === "23514" && error instanceof Error && "routine" in error && error.routine === "ExecFindPartition";

/** All parts, in no order. */
export async function listPartitions(client: Client): Promise<Partition[]> {
  const found = await runPlain(
    client,
    `select relname as name, pg_get_expr(relpartbound, pg_class.oid) as bounds
      from pg_inherits join pg_class on pg_class.oid = inhrelid where inhparent = 'log'::regclass`,
  );
  return found.map(({ name, bounds }) => {
    const [, from = "", to = ""] = /FROM \('([^']*)'\) TO \('([^']*)'\)/.exec(String(bounds)) ?? [];
    return { name: String(name), from: readIdTime(from), to: readIdTime(to) };
  });
}

/** Makes those parts for these times that are not there. Answers all parts. */
export async function createPartitions(client: Client, times: readonly Millis[]): Promise<Partition[]> {
  const present = await listPartitions(client);
  const missing = [...new Set(times.map((time) => Math.floor(time / day) * day))]
    .filter((from) => !present.some((part) => part.from <= from && from < part.to))
    .map((from) => ({ name: `log_day_${from / day}`, from, to: from + day }));
  for (const part of missing) await runPlain(client, createPartitionSql(part));
  return [...present, ...missing];
}

/** The same for rows that come from elsewhere, and may be of any time. */
export async function createPartitionsFor(client: Client, ids: readonly string[]): Promise<void> {
  await createPartitions(client, ids.map(readIdTime).filter(Number.isFinite));
}

/** A table that becomes a part takes no lock that would stop those who write; one that is made as a part would. */
const createPartitionSql = ({ name, from, to }: Partition): string =>
  `create table ${name} (like log including all); ` +
  `alter table log attach partition ${name} for values from ('${firstIdAt("log", from)}') to ('${firstIdAt("log", to)}')`;

/** How far parts reach from a time, without a gap. */
export function readCoveredRange(now: Millis, partitions: readonly Partition[]): { from: Millis; to: Millis } {
  const here = partitions.find(({ from, to }) => from <= now && now < to);
  if (!here) throw new Error(`the log has no part for the time ${now}`);
  let { to } = here;
  for (let next: Partition | undefined = here; next; next = partitions.find(({ from }) => from === to)) to = next.to;
  return { from: here.from, to };
}
