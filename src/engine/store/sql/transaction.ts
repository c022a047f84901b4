import type { BodyTableName, Rows, TableName } from "../../core/decision/command.ts";
import type { DeliveryCapacity } from "../../core/admission/capacity.ts";
import type { Millis, NodeId } from "../../core/values/basics.ts";
import { decideBatch, makeBatchResult } from "../batch/decide.ts";
import type { DatabaseConnection, Database, Deadline, Dialect } from "./database.ts";
import { LostUpdate } from "./database.ts";
import { findCountedColumns } from "../../core/limits/storageQuota.ts";
import { HistoryBodies } from "../histories/historyBodies.ts";
import type { WorkingSet } from "../batch/workingSet.ts";
import { getLoader } from "./loader.ts";
import { addStoreCounts, addUsage } from "./counts.ts";
import { sumStoreCounts } from "./changedCounts.ts";
import { clearChecksums } from "../layout/checksums.ts";
import { compareKeys, inLockOrder, keyValues, getStatements } from "./statements.ts";
import type { BatchResult, CommandCall, MomentSource } from "../store.ts";
import { Interrupted } from "../layout/storageErrors.ts";
import { StoredBytes, weighColumns } from "./storedBytes.ts";
import type { Table, Value } from "../catalog/tables.ts";
import { tables } from "../catalog/tables.ts";

const maxConflicts = 20;
/**
 * The maximum number of retries if the connection was lost before the commit. With more retries, the callers
 * would wait too long.
 */
const maxInterruptions = 2;

/**
 * Runs a batch as one transaction. Runs it again with fresh rows if another node changed a row first, or if
 * the connection was lost before the commit. No try begins after the deadline.
 */
export async function runSqlBatch(
  { database, momentSource, deadline }: BatchRunner,
  calls: readonly CommandCall[],
  capacity: DeliveryCapacity,
): Promise<BatchResult> {
  const { recentTimeIndex, recentHistories } = database;
  let interruptions = 0;
  for (let attempt = 1; ; attempt++) {
    try {
      const { set, histories } = await database.transaction(async (connection, startTime) => {
        const loader = database.recent?.cachedLoader(getLoader(connection)) ?? getLoader(connection);
        let moved = 0;
        const willMove = (bytes: number): void => deadline?.willMove((moved += bytes));
        const { set, replies, now } = await decideBatch(calls, {
          loader,
          capacity,
          momentSource,
          startTime,
          recentTimeIndex,
          ...(deadline && { willLoad: willMove }),
        });
        const histories = new HistoryBodies(makeBatchResult(set, replies), {
          set,
          loader,
          recent: recentHistories,
        });
        const more = deadline ? countWrittenBodies(set) - deadline.bytes : 0;
        if (more > 0) willMove(more);
        const allowing = more > 0 ? database.allowSilence?.(connection, more) : undefined;
        const idDroppedWholeBefore = database.logTruncation?.idDroppedWholeBefore(now) ?? null;
        const writing = writeAll(connection, set, {
          now,
          node: momentSource.node,
          idDroppedWholeBefore,
          touchNodeRow: database.touchNodeRow?.bind(database),
        });
        // The histories are requested before the writes are answered, so that rows are locked for one round
        // trip less.
        const [allowResult, writeResult, loadResult] = await Promise.allSettled([
          allowing,
          writing,
          histories.load(),
        ]);
        if (allowResult.status === "rejected") throw allowResult.reason;
        if (writeResult.status === "rejected") throw writeResult.reason;
        if (loadResult.status === "rejected") throw loadResult.reason;
        return { set, histories };
      }, deadline);
      // Not before the end of the transaction: a batch that is lost has denied nothing.
      set.reportDenied();
      database.recent?.record(set);
      recentTimeIndex.record(set.effects.newTimeIndexEntries);
      const result = histories.finish();
      if (result.dueAt !== null) database.notifyDue?.(result.dueAt);
      return result;
    } catch (error) {
      const mayTryAgain =
        error instanceof Interrupted ? ++interruptions <= maxInterruptions : attempt < maxConflicts;
      if (!mayTryAgain || !database.isConflict(error)) throw error;
      if (deadline?.signal.aborted)
        throw new Interrupted("the batch was not stored in time", { cause: error });
      await database.pause?.(attempt);
    }
  }
}

/** The tables whose rows may have a large body. */
const tablesWithBodies = [
  "storedMessages",
  "deadLetters",
  "notifications",
  "steps",
] as const satisfies BodyTableName[];

/**
 * Returns the bytes of the bodies that a batch writes. A callback, a retry of a dead letter or a resumed run
 * writes bodies that were stored before, so the inputs of the commands do not tell.
 */
function countWrittenBodies(set: WorkingSet): number {
  let bytes = 0;
  for (const name of tablesWithBodies) {
    if (set.countChanges(name) === 0) continue;
    for (const { now } of set.changes(name)) bytes += now?.body.byteLength ?? 0;
  }
  return bytes;
}

/**
 * The database to which a batch is written, the source of its time and ids, and the end of its time, over all
 * tries. Without `deadline`, a batch may take any time.
 */
type BatchRunner = { database: Database; momentSource: MomentSource; deadline?: Deadline };

/** `idDroppedWholeBefore`: see `Database.logTruncation`. `touchNodeRow`: see `Database.touchNodeRow`. */
type WriteOptions = {
  now: Millis;
  node: NodeId;
  idDroppedWholeBefore: string | null;
  touchNodeRow: Database["touchNodeRow"];
};

/**
 * Writes all tables without waiting for one statement before sending the next, because a connection keeps the
 * order. All statements have completed when this function returns, even if one has failed. Otherwise a late
 * statement could run outside of the transaction. The first error is thrown, because it causes all later
 * errors.
 */
async function writeAll(
  connection: DatabaseConnection,
  set: WorkingSet,
  options: WriteOptions,
): Promise<void> {
  const faults: unknown[] = [];
  const note = (error: unknown): never[] => {
    faults.push(error);
    return [];
  };
  let isChange = false;
  const runEach: DatabaseConnection["each"] = (sql, types, rows) => {
    isChange = true;
    return connection.each(sql, types, rows).catch(note);
  };
  const noting: DatabaseConnection = { ...connection, each: runEach };
  const stored = new StoredBytes();
  const tableWrite = { set, stored, idDroppedWholeBefore: options.idDroppedWholeBefore };
  const writing: Promise<unknown>[] = set
    .listTouchedTables()
    .map((name) => writeTable(noting, name, tableWrite).catch(note));
  const count = (): Promise<void> => {
    stored.addTo(set.effects.usage, (account) => set.peek("accounts", account)?.deletedAt !== undefined);
    return addUsage(noting, set.effects.usage.rows(options));
  };
  // The weight of removed rows is known once they are removed. Most batches publish, send or settle. They
  // remove no weighed rows, so they do not wait.
  writing.push((stored.whenKnown()?.then(count) ?? count()).catch(note));
  const countsNode = options.touchNodeRow ? options.node : undefined;
  writing.push(addStoreCounts(noting, sumStoreCounts(set), countsNode).catch(note));
  // At this point, all statements have been sent. Only the usage that counts removed rows may follow, in the
  // same transaction.
  if (isChange && options.touchNodeRow) writing.push(options.touchNodeRow(connection).catch(note));
  await Promise.all(writing);
  if (faults.length > 0) throw faults[0];
}

type TableWrite = { set: WorkingSet; stored: StoredBytes; idDroppedWholeBefore: string | null };

/** Writes the net changes of a table: one statement each for inserted, updated and removed rows. */
async function writeTable<T extends TableName>(
  connection: DatabaseConnection,
  name: T,
  { set, stored, idDroppedWholeBefore }: TableWrite,
): Promise<void> {
  const table: Table<Rows[T]> = tables[name];
  const { insert, types, update, remove, keyTypes } = getStatements(connection.dialect, name);
  const inserted: Value[][] = [];
  const updatedRows: Value[][] = [];
  const removedKeys: Value[][] = [];
  const forgotten = new Map<string, Value[]>();
  const countsBytes = findCountedColumns(name) !== undefined;
  /**
   * Returns the values of a row and adds its weight to the stored bytes: `times` is 1 for a new row and -1
   * for a removed one.
   */
  const toValues = (row: Rows[T], times: 1 | -1): Value[] => {
    const columns = table.write(row, connection.cipher);
    if (countsBytes) stored.add(String(columns.account), times * weighColumns(name, columns));
    return Object.values(connection.dialect.checksums ? columns : clearChecksums(columns));
  };
  for (const { key, before, now } of set.changes(name)) {
    if (
      now === undefined &&
      name === "log" &&
      idDroppedWholeBefore !== null &&
      String(key[1]) < idDroppedWholeBefore
    ) {
      recordLast(forgotten, keyValues(key));
      if (before) toValues(before, -1);
    } else if (now === undefined) removedKeys.push(keyValues(key));
    else if (before === undefined) inserted.push(toValues(now, 1));
    else {
      const values = toValues(now, 1);
      const earlier = countsBytes || table.unlocked ? toValues(before, -1) : [];
      updatedRows.push(
        update.positions.map((position) => values[position] ?? null).concat(table.unlocked ? earlier : []),
      );
    }
  }
  if (inserted.length + updatedRows.length + removedKeys.length + forgotten.size === 0) return;
  if (table.contested) inserted.sort(inLockOrder(table));
  const removing = (): Promise<unknown> => {
    const removed = connection.each(remove, keyTypes, removedKeys);
    if (countsBytes) stored.subtractRemoved(removed);
    return removed;
  };
  const [, updated] = await Promise.all([
    inserted.length > 0 ? connection.each(insert, types, inserted) : null,
    updatedRows.length > 0 ? connection.each(update.sql, update.types, updatedRows) : null,
    removedKeys.length > 0 ? removing() : null,
    forgotten.size > 0
      ? connection.each(
          forgetLogSql(connection.dialect),
          keyTypes,
          [...forgotten.values()].sort(compareKeys(1)),
        )
      : null,
  ]);
  if (table.unlocked && updated && updated.length < updatedRows.length)
    throw new LostUpdate(`${name}: changed by another node`);
}

/**
 * Keeps the last key of each account. The log of an account is removed from its oldest entry on, so the last
 * key covers all keys before it.
 */
function recordLast(forgotten: Map<string, Value[]>, key: Value[]): void {
  const [account = "", id = ""] = key.map(String);
  if (String(forgotten.get(account)?.[1] ?? "") < id) forgotten.set(account, key);
}

const forgetLogSql = (dialect: Dialect): string =>
  `insert into log_cuts (account, up_to) ${dialect.givenRows(["text", "text"]).values}
    on conflict (account) do update set up_to = greatest(log_cuts.up_to, excluded.up_to)`;
