import type { Rows, TableName } from "../../core/decision/command.ts";
import type { Hands } from "../../core/admission/capacity.ts";
import type { Millis, NodeId } from "../../core/model/message.ts";
import { decideBatch, resultOf } from "../batch/decide.ts";
import type { Connection, Database, Dialect } from "./database.ts";
import { LostUpdate } from "./database.ts";
import { weighingOf } from "../../core/accounts/storageQuota.ts";
import { addUsage } from "./addUsage.ts";
import { composed } from "../batch/compose.ts";
import type { WorkingSet } from "../batch/workingSet.ts";
import { loaderOf } from "./loader.ts";
import { unchecked } from "./checked.ts";
import { byKey, inLockOrder, keyValues, statementsOf } from "./statements.ts";
import type { BatchResult, Call, Source } from "../store.ts";
import { Interrupted } from "../store.ts";
import { StoredBytes, weightOfRow } from "./storedBytes.ts";
import type { Table, Value } from "./tables.ts";
import { tables } from "./tables.ts";

const mostRaces = 20;
/** How often a transaction is tried again whose connection was lost before the commit. More tries would keep its callers waiting. */
const mostInterruptions = 2;

/** Runs a batch as one transaction, and again from fresh rows when another node was faster or the connection was lost before the commit. */
export async function runSqlBatch(database: Database, source: Source, calls: readonly Call[], hands: Hands): Promise<BatchResult> {
  const { recentSightings } = database;
  let interruptions = 0;
  for (let race = 1; ; race++) {
    try {
      const { set, result } = await database.transaction(async (connection, begun) => {
        const loader = database.recent?.before(loaderOf(connection)) ?? loaderOf(connection);
        const { set, replies, now } = await decideBatch(calls, { loader, hands, source, begun, recentSightings });
        const result = resultOf(set, replies);
        const wholeBefore = database.logCut?.wholeBefore(now) ?? null;
        const writing = writeAll(connection, set, { now, node: source.node, wholeBefore, sign: database.sign?.bind(database) });
        // Its reads go behind the writes without waiting for them: rows are locked for one round trip less.
        const [written, composing] = await Promise.allSettled([writing, composed(loader, result)]);
        if (written.status === "rejected") throw written.reason;
        if (composing.status === "rejected") throw composing.reason;
        return { set, result: composing.value };
      });
      database.recent?.learn(set);
      recentSightings.learn(set.effects.sighted);
      if (result.dueAt !== null) database.tellOthers?.(result.dueAt);
      return result;
    } catch (error) {
      const mayTryAgain = error instanceof Interrupted ? ++interruptions <= mostInterruptions : race < mostRaces;
      if (!mayTryAgain || !database.isConflict(error)) throw error;
      await database.pause?.(race);
    }
  }
}

/** `wholeBefore`: see `Database.logCut`. `sign`: see `Database.sign`. */
type Writing = { now: Millis; node: NodeId; wholeBefore: string | null; sign: Database["sign"] };

/**
 * All tables in one go: a connection keeps the order, and need not wait for one answer before the next statement. All have answered
 * when this ends, also where one has failed: what came behind the end of the transaction would be none of it. What failed first tells
 * why, as the rest is refused because of it.
 */
async function writeAll(connection: Connection, set: WorkingSet, at: Writing): Promise<void> {
  const faults: unknown[] = [];
  const note = (error: unknown): never[] => {
    faults.push(error);
    return [];
  };
  let isChange = false;
  const each: Connection["each"] = (sql, types, rows) => {
    isChange = true;
    return connection.each(sql, types, rows).catch(note);
  };
  const noting: Connection = { ...connection, each };
  const stored = new StoredBytes();
  const of = { wholeBefore: at.wholeBefore, stored };
  const writing: Promise<unknown>[] = set.touched().map((name) => writeTable(noting, name, set, of).catch(note));
  const count = (): Promise<void> => {
    stored.addTo(set.effects.tally, (account) => set.get("accounts", account)?.deletedAt !== undefined);
    return addUsage(noting, set.effects.tally.rows(at));
  };
  // The weight of removed rows is known when they are removed. Batches that publish, send or settle remove no such rows, so they do not wait.
  writing.push((stored.known()?.then(count) ?? count()).catch(note));
  // All of them have asked for what they write by now, except for the bytes of removed rows, which the same transaction adds.
  if (isChange && at.sign) writing.push(at.sign(connection).catch(note));
  await Promise.all(writing);
  if (faults.length > 0) throw faults[0];
}

/** Writes the net changes of a table: one statement for what is new, one for what changed, one for what is gone. */
async function writeTable<T extends TableName>(
  connection: Connection,
  name: T,
  set: WorkingSet,
  { wholeBefore, stored }: { wholeBefore: string | null; stored: StoredBytes },
): Promise<void> {
  const table: Table<Rows[T]> = tables[name];
  const { insert, types, update, remove, keyTypes } = statementsOf(connection.dialect, name);
  const made: Value[][] = [];
  const changed: Value[][] = [];
  const gone: Value[][] = [];
  const forgotten = new Map<string, Value[]>();
  const isWeighed = weighingOf(name) !== undefined;
  /** Returns the values of a row, and counts its weight: 1: it comes; -1: it goes. */
  const valuesOf = (row: Rows[T], times: 1 | -1): Value[] => {
    const columns = table.write(row, connection.seals);
    if (isWeighed) stored.add(String(columns.account), times * weightOfRow(name, columns));
    return Object.values(connection.dialect.checksums ? columns : unchecked(columns));
  };
  for (const { key, before, now } of set.changes(name)) {
    if (now === undefined && name === "log" && wholeBefore !== null && String(key[1]) < wholeBefore) {
      noteLast(forgotten, keyValues(key));
      if (before) valuesOf(before, -1);
    } else if (now === undefined) gone.push(keyValues(key));
    else if (before === undefined) made.push(valuesOf(now, 1));
    else {
      const values = valuesOf(now, 1);
      const earlier = isWeighed || table.unlocked ? valuesOf(before, -1) : [];
      changed.push(update.places.map((place) => values[place] ?? null).concat(table.unlocked ? earlier : []));
    }
  }
  if (made.length + changed.length + gone.length + forgotten.size === 0) return;
  if (table.contested) made.sort(inLockOrder(table));
  const removing = (): Promise<unknown> => {
    const removed = connection.each(remove, keyTypes, gone);
    if (isWeighed) stored.takeAway(removed);
    return removed;
  };
  const [, updated] = await Promise.all([
    made.length > 0 ? connection.each(insert, types, made) : null,
    changed.length > 0 ? connection.each(update.sql, update.types, changed) : null,
    gone.length > 0 ? removing() : null,
    forgotten.size > 0 ? connection.each(forget(connection.dialect), keyTypes, [...forgotten.values()].sort(byKey(1))) : null,
  ]);
  if (table.unlocked && updated && updated.length < changed.length) throw new LostUpdate(`${name}: changed by another node`);
}

/** The log of an account goes from its oldest row on, so its last one tells of all. */
function noteLast(forgotten: Map<string, Value[]>, key: Value[]): void {
  const [account = "", id = ""] = key.map(String);
  if (String(forgotten.get(account)?.[1] ?? "") < id) forgotten.set(account, key);
}

const forget = (dialect: Dialect): string =>
  `insert into log_cuts (account, up_to) ${dialect.given(["text", "text"]).values}
    on conflict (account) do update set up_to = greatest(log_cuts.up_to, excluded.up_to)`;
