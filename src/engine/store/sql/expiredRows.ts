import type { ExpiredNeed } from "../../core/decision/command.ts";
import type { AccountId } from "../../core/values/basics.ts";
import type { LogRow } from "../../core/model/logRow.ts";
import type { Run, Step } from "../../core/model/run.ts";
import { listRunBounds } from "../../core/model/stepId.ts";
import { dayPrefix, toDayNumber } from "../../core/search/timeIndex.ts";
import { firstIdAt } from "../../core/values/ids.ts";
import type { ExpiredRows } from "../../core/decision/command.ts";
import { bucketRangeFrom } from "../../core/accounts/usage.ts";
import type { Loader } from "../batch/loader.ts";
import type { DatabaseConnection } from "./database.ts";
import { createReader, idRangeClause, makeRangeClause } from "./rows.ts";
import { tables } from "../catalog/tables.ts";

/**
 * Returns a function that reads the rows of an account whose retention has ended. Nodes that read the same
 * account wait for each other. Otherwise a node could move an entry to the kept log just after another node
 * has removed the entry that ended the message.
 */
export function createExpiredReader(connection: DatabaseConnection): Loader["expired"] {
  const readAged = createAgedRowsReader(connection);
  return async (need) => {
    // The reads need not wait for the answer to the lock, because a connection runs statements in order.
    const locking = lockLog(connection, need.account);
    const aging = readAged(need);
    // The count comes last, so that it shows every removal that the reads of rows show.
    const counting = need.countsDeadLetters === true ? countDeadLetters(connection, need.account) : 0;
    const [aged, deadLetterCount] = await Promise.all([aging, counting, locking]);
    return { ...aged, deadLetterCount, steps: await readStepsOfRuns(connection, aged.runs, need) };
  };
}

/** Returns the number of dead letters of an account. It is the sum of a few hundred buckets. */
async function countDeadLetters(connection: DatabaseConnection, account: AccountId): Promise<number> {
  const { after, before } = bucketRangeFrom("3h", 0);
  const sumSql =
    "select coalesce(sum(dead_letters), 0) as n from usage where account = ? and id > ? and id < ?";
  const [row] = await connection.query(sumSql, [account, after, before]);
  return Number(row?.n ?? 0);
}

async function lockLog(connection: DatabaseConnection, account: AccountId): Promise<void> {
  const { dialect } = connection;
  const lockSql = dialect.lockNames?.(dialect.givenRows(["text"]));
  if (lockSql !== undefined) await connection.each(lockSql, ["text"], [[`log of ${account}`]]);
}

function createAgedRowsReader(
  connection: DatabaseConnection,
): (need: ExpiredNeed) => Promise<Omit<ExpiredRows, "steps">> {
  const { log, keptLog, deadLetters, deduplications, audit, timeIndex, runs, usage } = tables;
  const { dialect } = connection;
  const read = createReader(connection);
  const oldest = "where account = ? and id < ? order by id limit ?";
  const ended =
    "where account = ? and expires_at < ? and key <> '' order by expires_at, key limit ?" +
    dialect.lock(deduplications.name);
  const endedRuns =
    `${dialect.useIndex("runs_end")} where ended_at is not null and account = ? and failed = ?` +
    ` and ended_at < ? order by ended_at, id limit ?${dialect.lock(runs.name)}`;
  const usageWithin = `${idRangeClause} limit ?${dialect.lock(usage.name)}`;
  const readLog = (account: AccountId, before: string, limit: number): Promise<LogRow[]> => {
    const { where, values } = makeRangeClause({ account, before }, { tableName: "log", dialect });
    return read(log, { rest: `${where} order by id limit ?`, values: [...values, limit] });
  };
  return async ({ account, limit, ...before }) => {
    const [oldLog, oldKeptLog, oldDeadLetters, oldDeduplications, oldAudit, oldTimeIndex, ...others] =
      await Promise.all([
        readLog(account, firstIdAt("log", before.logBefore), limit),
        read(keptLog, {
          rest: oldest,
          values: [account, firstIdAt("log", before.keptLogBefore), limit],
          bodies: false,
        }),
        read(deadLetters, {
          rest: oldest + dialect.lock(deadLetters.name),
          values: [account, firstIdAt("dlq", before.deadLettersBefore), limit],
          bodies: false,
        }),
        read(deduplications, { rest: ended, values: [account, before.deduplicationsBefore, limit] }),
        read(audit, { rest: oldest, values: [account, firstIdAt("aud", before.auditBefore), limit] }),
        read(timeIndex, {
          rest: oldest,
          values: [account, dayPrefix(toDayNumber(before.timeIndexBefore)), limit],
        }),
        read(runs, { rest: endedRuns, values: [account, 0, before.runsBefore, limit] }),
        read(runs, { rest: endedRuns, values: [account, 1, before.failedRunsBefore, limit] }),
        Promise.all(
          before.usage.map((ids) =>
            read(usage, { rest: usageWithin, values: [account, ids.after, ids.before, limit] }),
          ),
        ),
      ]);
    const [succeeded, failed, oldUsage] = others;
    return {
      log: oldLog,
      keptLog: oldKeptLog,
      deadLetters: oldDeadLetters,
      deduplications: oldDeduplications,
      audit: oldAudit,
      timeIndex: oldTimeIndex,
      runs: [...succeeded, ...failed],
      usage: oldUsage.flat(),
    };
  };
}

/** Returns the steps of these runs without their bodies, at most `limit` in all. */
async function readStepsOfRuns(
  connection: DatabaseConnection,
  runs: readonly Run[],
  { account, limit }: ExpiredNeed,
): Promise<Step[]> {
  const read = createReader(connection);
  const steps: Step[] = [];
  for (const { id } of runs) {
    if (steps.length >= limit) break;
    const { after, before } = listRunBounds(id);
    const found = await read(tables.steps, {
      rest: `${idRangeClause} limit ?`,
      values: [account, after, before, limit - steps.length],
      bodies: false,
    });
    steps.push(...found);
  }
  return steps;
}
