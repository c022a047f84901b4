import type { Client } from "pg";
import { readIdTime, firstIdAt } from "../../core/values/ids.ts";
import type { Millis } from "../../core/values/basics.ts";
import { readSqlState } from "./databaseErrors.ts";
import { runPlain } from "./connection.ts";
import { day } from "../../core/values/time.ts";

/**
 * A partition of the log. It contains the entries whose ids were created from `from` (inclusive) to `to`
 * (exclusive).
 */
export type Partition = { name: string; from: Millis; to: Millis };

/**
 * Attaching or detaching a partition briefly needs an exclusive lock on the log. During a long read, such as
 * a backup, the attempt ends after this time and is repeated later.
 */
export const lockTimeout: Millis = 200;

/** Reports whether other transactions held a lock for longer than the lock timeout. */
export const isLockTimeout = (error: unknown): boolean => readSqlState(error) === "55P03";

/** Reports whether a row had no partition. */
export const isMissingPartition = (error: unknown): boolean =>
  readSqlState(error) === "23514" &&
  error instanceof Error &&
  "routine" in error &&
  error.routine === "ExecFindPartition";

/** Returns all partitions, in no particular order. */
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

/** Creates the missing partitions for these times. Returns all partitions. */
export async function createPartitions(client: Client, times: readonly Millis[]): Promise<Partition[]> {
  const present = await listPartitions(client);
  const missing = [...new Set(times.map((time) => Math.floor(time / day) * day))]
    .filter((from) => !present.some((part) => part.from <= from && from < part.to))
    .map((from) => ({ name: `log_day_${from / day}`, from, to: from + day }));
  for (const part of missing) await runPlain(client, createPartitionSql(part));
  return [...present, ...missing];
}

/** Creates the missing partitions for rows of another store, which may have any times. */
export async function createPartitionsFor(client: Client, ids: readonly string[]): Promise<void> {
  await createPartitions(client, ids.map(readIdTime).filter(Number.isFinite));
}

/**
 * Creates a table and then attaches it as a partition, because this takes no lock that blocks writers.
 * `create table … partition of` would take such a lock.
 */
const createPartitionSql = ({ name, from, to }: Partition): string =>
  `create table ${name} (like log including all); alter table log attach partition ${name} ` +
  `for values from ('${firstIdAt("log", from)}') to ('${firstIdAt("log", to)}')`;

/** Returns the range around a time that partitions cover without a gap. */
export function readCoveredRange(
  now: Millis,
  partitions: readonly Partition[],
): { from: Millis; to: Millis } {
  const here = partitions.find(({ from, to }) => from <= now && now < to);
  if (!here) throw new Error(`the log has no part for the time ${now}`);
  let { to } = here;
  for (let next: Partition | undefined = here; next; next = partitions.find(({ from }) => from === to))
    to = next.to;
  return { from: here.from, to };
}

/**
 * The log has no partition for the time of a transaction. The partition is created with no transaction open,
 * because a pooler may have only one connection for this node.
 */
export class MissingPartition extends Error {
  readonly created: Promise<void>;
  constructor(created: Promise<void>) {
    super("the log has no partition for this time");
    this.created = created;
    // The error reaches the callers that wait for the partition. If no caller waits yet, an error without a
    // handler would end the process.
    created.catch(() => undefined);
  }
}
