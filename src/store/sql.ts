import type { Key, LineHead, OfRunNeed, Rows, StepsNeed, TableName } from "../core/command.ts";
import type { Hands } from "../core/hands.ts";
import { firstIdAt } from "../core/ids.ts";
import type { AccountId, LogRow, MessageId, Millis, NodeId, Schedule } from "../core/message.ts";
import { noBytes } from "../core/message.ts";
import type { SentStep, Step } from "../core/run.ts";
import { stepKey } from "../core/run.ts";
import { decideBatch, resultOf } from "./batch.ts";
import type { Connection, Database, Dialect } from "./database.ts";
import { LostUpdate } from "./database.ts";
import { addUsage } from "./addUsage.ts";
import { composed } from "./compose.ts";
import type { WorkingSet } from "./draft.ts";
import { bytesOfRow } from "./historyBytes.ts";
import type { Loader } from "./loader.ts";
import { sealOf } from "./sealedTables.ts";
import type { Bodies, Range, SealedName, Sealing, SealingRange, Shelf } from "./shelf.ts";
import { fittingPage } from "./shelf.ts";
import { columnsOf, keyValues, statementsOf } from "./statements.ts";
import type { BatchResult, Call, Source } from "./store.ts";
import type { Columns, Table, Value } from "./tables.ts";
import { tables } from "./tables.ts";

const maxRaces = 20;

/** Runs a batch as one transaction, and again from fresh rows when another node was faster. */
export async function runSqlBatch(database: Database, source: Source, calls: readonly Call[], hands: Hands): Promise<BatchResult> {
  for (let race = 1; ; race++) {
    try {
      const { set, result } = await database.transaction(async (connection) => {
        const now = database.now?.() ?? source.now();
        const loader = database.recent?.before(loaderOf(connection)) ?? loaderOf(connection);
        const { set, replies } = await decideBatch(calls, { loader, hands, source, now });
        const result = resultOf(set, replies);
        await writeAll(connection, set, { now, node: source.node, wholeBefore: database.logCut?.wholeBefore ?? null });
        return { set, result: await composed(loader, result) };
      });
      database.recent?.learn(set);
      if (result.dueAt !== null) database.tellOthers?.(result.dueAt);
      return result;
    } catch (error) {
      if (race === maxRaces || !database.isConflict(error)) throw error;
      await database.pause?.(race);
    }
  }
}

/** `wholeBefore`: see `Database.logCut`. */
type Writing = { now: Millis; node: NodeId; wholeBefore: string | null };

/** In one go as well. Where both fail, what failed first tells why: the rest is refused because of it. */
async function writeAll(connection: Connection, set: WorkingSet, at: Writing): Promise<void> {
  const writing = writeChanges(connection, set, at.wholeBefore);
  const adding = addUsage(connection, set.tally.rows(at));
  adding.catch(() => undefined);
  await writing;
  await adding;
}

/** All tables at once: a connection keeps the order, and need not wait for one answer before the next statement. */
async function writeChanges(connection: Connection, set: WorkingSet, wholeBefore: string | null): Promise<void> {
  await Promise.all(set.touched().map((name) => writeTable(connection, name, set, wholeBefore)));
}

/** Writes the net changes of a table: one statement for what is new, one for what changed, one for what is gone. */
async function writeTable<T extends TableName>(
  connection: Connection,
  name: T,
  set: WorkingSet,
  wholeBefore: string | null,
): Promise<void> {
  const table: Table<Rows[T]> = tables[name];
  const made: Value[][] = [];
  const changed: Value[][] = [];
  const gone: Value[][] = [];
  const forgotten = new Map<string, Value[]>();
  const valuesOf = (row: Rows[T]): Value[] => Object.values(table.write(row, connection.seals));
  for (const { key, before, now } of set.changes(name)) {
    if (now === undefined && name === "log" && wholeBefore !== null && String(key[1]) < wholeBefore) noteLast(forgotten, keyValues(key));
    else if (now === undefined) gone.push(keyValues(key));
    else if (before === undefined) made.push(valuesOf(now));
    else changed.push(table.unlocked ? [...valuesOf(now), ...valuesOf(before)] : valuesOf(now));
  }
  if (made.length + changed.length + gone.length + forgotten.size === 0) return;
  const statements = statementsOf(connection.dialect, name);
  if (table.contested) made.sort(byKey(table.key.length));
  const [, updated] = await Promise.all([
    made.length > 0 ? connection.each(statements.insert, statements.types, made) : null,
    changed.length > 0 ? connection.each(statements.update, statements.updateTypes, changed) : null,
    gone.length > 0 ? connection.each(statements.remove, statements.keyTypes, gone) : null,
    forgotten.size > 0 ? connection.each(forget(connection.dialect), statements.keyTypes, [...forgotten.values()].sort(byKey(1))) : null,
  ]);
  if (table.unlocked && updated && updated.length < changed.length) throw new LostUpdate(`${name}: changed by another node`);
}

/** The log of an account goes from its oldest row on, so its last one tells of all. */
function noteLast(forgotten: Map<string, Value[]>, key: Value[]): void {
  const [account = "", id = ""] = key.map(String);
  if (String(forgotten.get(account)?.[1] ?? "") < id) forgotten.set(account, key);
}

const forget = (dialect: Dialect): string =>
  `insert into log_forgotten (account, up_to) ${dialect.given(["text", "text"]).values}
    on conflict (account) do update set up_to = greatest(log_forgotten.up_to, excluded.up_to)`;

/** The columns of the key come first. */
const byKey =
  (width: number) =>
  (a: Value[], b: Value[]): number => {
    const [left, right] = [a.slice(0, width).join("\n"), b.slice(0, width).join("\n")];
    return left < right ? -1 : left > right ? 1 : 0;
  };

async function rows<T extends TableName>(connection: Connection, name: T, keys: readonly Key[], how: How): Promise<Rows[T][]> {
  const table: Table<Rows[T]> = tables[name];
  const statements = statementsOf(connection.dialect, name);
  const statement = statements[how.bodies === false ? "outline" : "whole"][how.to];
  const found = await connection.each(statement, statements.keyTypes, keys.map(keyValues));
  return found.map((row) => table.read(row, connection.seals));
}

/** To take rows away from other nodes, or to look at them. */
type How = { to: "take" | "look" } & Bodies;

/** Reads rows of one table. `rest` is what follows its name. */
const reader =
  (connection: Connection) =>
  async <Row>(table: Table<Row>, rest: string, values: Value[], how?: Bodies): Promise<Row[]> =>
    (await connection.query(`select ${columnsOf(table, how)} from ${table.name} ${rest}`, values)).map((row) =>
      table.read(row, connection.seals),
    );

const loaders = new WeakMap<Connection, Loader>();

function loaderOf(connection: Connection): Loader {
  let loader = loaders.get(connection);
  if (!loader) loaders.set(connection, (loader = makeLoader(connection)));
  return loader;
}

function makeLoader(connection: Connection): Loader {
  const { messages, lines, flows, schedules, waiters } = tables;
  const { dialect } = connection;
  const list = reader(connection);
  const dueMessages = `where due_at <= ? order by due_at, id limit ?${dialect.lock(messages.name, "skip locked")}`;
  const dueLines = `where due_at <= ? order by due_at, host, account limit ?${dialect.lock(lines.name, "skip locked")}`;
  const dueById = (name: string): string => `where due_at <= ? order by due_at, account, id limit ?${dialect.lock(name, "skip locked")}`;
  const sizesOfDue = `select account, id, coalesce(length(body), 0) as size from ${schedules.name} ${dueById(schedules.name)}`;
  const dueSchedules = async (now: Millis, limit: number): Promise<Schedule[]> => {
    const found = await connection.query(sizesOfDue, [now, limit]);
    const some = found.slice(0, fittingPage(found.map(({ size }) => Number(size))));
    const keys = some.map(({ account, id }) => [String(account), String(id)] as const);
    const taken = keys.length === 0 ? [] : await rows(connection, "schedules", keys, { to: "take" });
    // They come in the order of their keys, and fire in the order in which they came due.
    return taken.sort((a, b) => (a.dueAt ?? 0) - (b.dueAt ?? 0));
  };
  const head = `${dialect.by("messages_line")} where line is not null and account = ? and line = ? order by id limit ?${dialect.lock(messages.name)}`;
  const leasedByOthers = `where due_at is not null and leased_by <> ? order by due_at, id limit ?`;
  return {
    rows: (name, keys, how) => rows(connection, name, keys, { to: "take", ...how }),
    due: async (now, most) => {
      const [due, ofHosts, ofFlows, fired, waiting] = await Promise.all([
        list(messages, dueMessages, [now, most.limit]),
        list(lines, dueLines, [now, most.lines]),
        list(flows, dueById(flows.name), [now, most.flows]),
        dueSchedules(now, most.schedules),
        list(waiters, dueById(waiters.name), [now, most.waiters]),
      ]);
      return { messages: due, lines: ofHosts, flows: ofFlows, schedules: fired, waiters: waiting };
    },
    ofRuns: ofRunsIn(connection),
    ...historiesOf(connection),
    heads: async (heads: readonly LineHead[]) =>
      (await Promise.all(heads.map(({ account, line, limit }) => list(messages, head, [account, line, limit])))).flat(),
    leasedByOthers: (node, limit) => list(messages, leasedByOthers, [node, limit]),
    ...expiredOf(connection),
  };
}

/** What is past its time. */
function expiredOf(connection: Connection): Pick<Loader, "expired"> {
  const { log, deadLetters, deduplications, runs } = tables;
  const { dialect } = connection;
  const list = reader(connection);
  const endedRuns = `${dialect.by("runs_end")} where ended_at is not null and account = ? and failed = ? and ended_at < ? order by ended_at, id limit ?${dialect.lock(runs.name)}`;
  const oldest = `where account = ? and id < ? order by id limit ?`;
  const oldestLog = async (account: AccountId, before: string, limit: number): Promise<LogRow[]> => {
    const { where, values } = stretch({ account, before }, { of: "log", dialect });
    return list(log, `${where} order by id limit ?`, [...values, limit]);
  };
  const ended = `where account = ? and expires_at < ? order by expires_at, key limit ?`;
  const usageWithin = `${within} limit ?${dialect.lock(tables.usage.name)}`;
  return {
    expired: async ({ account, limit, ...before }) => {
      const [oldLog, oldLetters, endedDeduplications, succeeded, failed, usage] = await Promise.all([
        oldestLog(account, firstIdAt("log", before.logBefore), limit),
        list(deadLetters, oldest + dialect.lock(deadLetters.name), [account, firstIdAt("dlq", before.deadLettersBefore), limit], {
          bodies: false,
        }),
        list(deduplications, ended + dialect.lock(deduplications.name), [account, before.deduplicationsBefore, limit]),
        list(runs, endedRuns, [account, 0, before.runsBefore, limit]),
        list(runs, endedRuns, [account, 1, before.failedRunsBefore, limit]),
        Promise.all(before.usage.map((ids) => list(tables.usage, usageWithin, [account, ids.after, ids.before, limit]))),
      ]);
      const gone = [...succeeded, ...failed];
      const steps: Step[] = [];
      for (const { id } of gone) {
        if (steps.length < limit)
          steps.push(...(await list(tables.steps, `${within} limit ?`, [account, ...idsOf(id), limit - steps.length], { bodies: false })));
      }
      return { log: oldLog, deadLetters: oldLetters, deduplications: endedDeduplications, runs: gone, steps, usage: usage.flat() };
    },
  };
}

/** What belongs to runs: each table by itself, and of waiters and notifications those of one event, where no others are needed. */
function ofRunsIn(connection: Connection): Loader["ofRuns"] {
  const { messages, waiters, notifications, steps } = tables;
  const { dialect } = connection;
  const list = reader(connection);
  const ofMessages = `${dialect.by("messages_run")} where run is not null and account = ? and run = ? order by id${dialect.lock(messages.name)}`;
  const ofEvent = `where account = ? and id > ? and id < ? and event = ? order by id`;
  const sized = `select account, id, kind, event, created_at, coalesce(length(body), 0) as size from ${notifications.name}`;
  const valuesOf = ({ account, run, event }: OfRunNeed): string[] => [account, ...idsOf(run), ...(event === undefined ? [] : [event])];
  const rest = (need: OfRunNeed, name: string): string => (need.event === undefined ? within : ofEvent) + dialect.lock(name);
  const waitersOf = (need: OfRunNeed) =>
    list(waiters, (need.event === undefined ? "" : `${dialect.by("waiters_event")} `) + rest(need, waiters.name), valuesOf(need));
  const notificationsOf = async (need: OfRunNeed) =>
    (await connection.query(`${sized} ${rest(need, notifications.name)}`, valuesOf(need))).map((row) => notifications.read(row));
  return async (needs) => {
    const each = async <Row>(table: OfRunNeed["table"], read: (need: OfRunNeed) => Promise<Row[]>): Promise<Row[]> =>
      (await Promise.all(needs.filter((need) => need.table === table).map(read))).flat();
    const [inMessages, inWaiters, inNotifications, inSteps] = await Promise.all([
      each("messages", ({ account, run }) => list(messages, ofMessages, [account, run])),
      each("waiters", waitersOf),
      each("notifications", notificationsOf),
      each("steps", (need) => list(steps, within, valuesOf(need), { bodies: false })),
    ]);
    return { messages: inMessages, waiters: inWaiters, notifications: inNotifications, steps: inSteps };
  };
}

/** Rows of a run, by their ids: in the order of ids. */
const within = `where account = ? and id > ? and id < ? order by id`;
/** The stretch of the ids of what belongs to a run: "0" comes after "/". */
const idsOf = (run: string): [string, string] => [`${run}/`, `${run}0`];

/** Reads that take nothing away from others: histories never change. */
function historiesOf(connection: Connection): Pick<Loader, "steps" | "sizesOfSteps" | "histories"> {
  const list = reader(connection);
  const size = `select coalesce(sum(${bytesOfRow} + coalesce(length(body), 0)), 0) as size from steps`;
  const whereIs = ({ account, run, slot }: StepsNeed): { where: string; values: string[] } =>
    slot === undefined
      ? { where: "where account = ? and id > ? and id < ?", values: [account, ...idsOf(run)] }
      : { where: "where account = ? and id = ?", values: [account, stepKey(run, slot)] };
  const upTo = `select position, message_id, call_type, body from steps where account = ? and id > ? and id < ? and position <= ?`;
  return {
    steps: async (of) => (await Promise.all(of.map(whereIs).map(({ where, values }) => list(tables.steps, where, values)))).flat(),
    sizesOfSteps: async (of) => {
      const found = await Promise.all(of.map(whereIs).map(({ where, values }) => connection.query(`${size} ${where}`, values)));
      return found.map(([row]) => Number(row?.size ?? 0));
    },
    histories: async (of) => {
      const found = await Promise.all(of.map((need) => connection.query(upTo, [need.account, ...idsOf(need.run), need.upTo])));
      return found.map((steps) => steps.sort((a, b) => Number(a.position) - Number(b.position)).map(sentOf));
    },
  };
}

/** Most of a step is not looked at here, and this is on the way of every message of a run. */
const sentOf = ({ position, message_id: messageId, call_type: callType, body }: Columns): SentStep => ({
  position: Number(position),
  messageId: String(messageId),
  callType: callType as Step["callType"],
  body: body instanceof Uint8Array ? body : noBytes,
});

const nextDue = `select min(due_at) as at from (select min(due_at) as due_at from messages where due_at is not null
  union all select min(due_at) as due_at from lines
  union all select min(due_at) as due_at from flows where due_at is not null
  union all select min(due_at) as due_at from schedules where due_at is not null
  union all select min(due_at) as due_at from waiters where due_at is not null) as earliest`;

/** When the next message, line, schedule or waiter falls due. */
export async function nextDueAt(connection: Connection): Promise<Millis | null> {
  const [row] = await connection.query(nextDue, []);
  return typeof row?.at === "number" ? row.at : null;
}

const countLeased = `select count(*) as leased from (select account, leased_by from messages
  where due_at is not null and due_at > ? and due_at <= ? order by due_at, id limit ?) as soon where leased_by is not null and account = ?`;

const countBefore = ({ by }: Dialect): string => `select count(*) as before from (select id from messages ${by("messages_line")}
  where line is not null and account = ? and line = ? and id < ? limit ?) as earlier`;

/** How long lists are. */
const listsOf = (connection: Connection): Pick<Shelf, "idBehind" | "count"> => ({
  idBehind: async (name, account, newer) => {
    const { where, values } = stretch({ account }, { of: name, dialect: connection.dialect });
    const newest = `select id from ${tables[name].name} ${where} order by id desc limit 1 offset ?`;
    const [row] = await connection.query(newest, [...values, newer]);
    return row ? String(row.id) : null;
  },
  count: async (name, range) => {
    const { where, values } = stretch(range, { of: name, dialect: connection.dialect });
    const counted = `select count(*) as n from (select 1 as one from ${tables[name].name} ${where} limit ?) as counted`;
    const [row] = await connection.query(counted, [...values, range.limit]);
    return Number(row?.n ?? 0);
  },
});

/** The plain reads of a database. */
export function sqlShelf(connection: Connection): Shelf {
  const read = reader(connection);
  const { dialect } = connection;
  return {
    rows: (name, keys, how) => rows(connection, name, keys, { to: "look", ...how }),
    sizes: async (name, keys) => {
      const { sizes, keyTypes } = statementsOf(connection.dialect, name);
      const found = await connection.each(sizes, keyTypes, keys.map(keyValues));
      return new Map(found.map(({ id, size }) => [String(id), Number(size)]));
    },
    sizesIn: (name, range) => sizesIn(connection, name, range),
    range: async (name, range) => {
      const id = tables[name].key.at(-1) ?? "id";
      const { where, values } = stretch(range, { of: name, dialect });
      return read(tables[name], `${where} order by ${id} ${range.descending ? "desc" : "asc"} limit ?`, [...values, range.limit], range);
    },
    logOf: (messageId, range) => {
      const { where, values } = stretch(range, { of: "log", dialect });
      const rest = `${dialect.by("log_message")} ${where} and message_id = ? order by id ${range.descending ? "desc" : "asc"} limit ?`;
      return read(tables.log, rest, [...values, messageId, range.limit], range);
    },
    logsOf: (account, messageIds, limit) => logsOf(connection, account, messageIds, limit),
    messagesTo: (host, range) => {
      const { where, values } = stretch(range, { of: "messages", dialect });
      return read(tables.messages, `${dialect.by("messages_host")} ${where} and host = ? order by id limit ?`, [
        ...values,
        host,
        range.limit,
      ]);
    },
    countBefore: async ({ account, line, id }, most) => {
      const [row] = await connection.query(countBefore(dialect), [account, line, id, most]);
      return Number(row?.before ?? 0);
    },
    slotsOfQueue: (account, queue, limit) =>
      read(tables.slots, `${dialect.by("slots_queue")} where account = ? and queue = ? order by id limit ?`, [account, queue, limit]),
    holdersOf: (account, slot, limit) => {
      const rest = `${dialect.by("messages_slot")} where slot is not null and account = ? and slot = ? order by id limit ?`;
      return read(tables.messages, rest, [account, slot, limit]);
    },
    accountByToken: async (hash) => (await read(tables.accounts, `where token_hash = ?`, [hash]))[0] ?? null,
    accounts: () => read(tables.accounts, `order by id`, []),
    ...listsOf(connection),
    sealing: (name, range) => sealing(connection, name, range),
    tokenByHash: async (hash) => (await read(tables.tokens, `where token_hash = ?`, [hash]))[0] ?? null,
    sourceBySecret: async (hash) => (await read(tables.sources, `where secret_hash = ?`, [hash]))[0] ?? null,
    messagesOfQueue: async ({ account, queue, limit }) => {
      const found = await connection.query(
        `select id from messages ${dialect.by("messages_queue")} where queue is not null and account = ? and queue = ?
          and state <> 'cancelling' order by id limit ?`,
        [account, queue, limit],
      );
      return found.map(({ id }) => String(id));
    },
    countLeased: async ({ account, now, until, scan }) => {
      const [row] = await connection.query(countLeased, [now, until, scan, account]);
      return Number(row?.leased ?? 0);
    },
    ...shelfOfRuns(connection),
    earliestDeduplicationEnd: async (account) => {
      const [row] = await connection.query(`select min(expires_at) as at from deduplications where account = ?`, [account]);
      return typeof row?.at === "number" ? row.at : null;
    },
  };
}

/** The account is all of the key of an account, and the first part of that of a source. */
async function sealing(connection: Connection, name: SealedName, { after, limit }: SealingRange): Promise<Sealing[]> {
  const id = name === "accounts" ? "''" : "id";
  const owner = name === "accounts" ? "id" : "account";
  const order = name === "accounts" ? "id" : "account, id";
  const behind = name === "accounts" ? "id > ?" : "(account, id) > (?, ?)";
  const values = name === "accounts" ? after.slice(0, 1) : after;
  const found = await connection.query(
    `select ${owner} as account, ${id} as id, detail from ${name} where ${behind} order by ${order} limit ?`,
    [...values, limit],
  );
  return found.map((row) => ({ account: String(row.account), id: String(row.id), seal: sealOf(row) }));
}

async function sizesIn(connection: Connection, name: "schedules", range: Range): Promise<number[]> {
  const { where, values } = stretch(range, { of: name, dialect: connection.dialect });
  const sizes = `select coalesce(length(body), 0) as size from ${name} ${where} order by id ${range.descending ? "desc" : "asc"} limit ?`;
  return (await connection.query(sizes, [...values, range.limit])).map(({ size }) => Number(size));
}

/** A few lines for each of many messages: for each of them the index is read from its end. */
async function logsOf(connection: Connection, account: AccountId, messageIds: readonly MessageId[], limit: number): Promise<LogRow[]> {
  const { dialect } = connection;
  const keyTypes = ["text", "text"] as const;
  const { also, column } = dialect.given(keyTypes);
  const isKept = dialect.forgottenUpTo ? `and log.id > ${dialect.forgottenUpTo(column(0))}` : "";
  const ofOne = `select ${columnsOf(tables.log, { bodies: false })} from log ${dialect.by("log_message")}
    where log.account = ${column(0)} and log.message_id = ${column(1)} ${isKept} order by log.id desc limit ${limit}`;
  // Where all keys are a relation, each of its rows has lines of its own.
  const lateral = also === "" ? "" : "lateral ";
  const statement = `select ${columnsOf(tables.log, { bodies: false })} from (select 1 as one) as one${also}, ${lateral}(${ofOne}) as log`;
  const found = await connection.each(
    statement,
    keyTypes,
    messageIds.map((id) => [account, id]),
  );
  return found.map((row) => tables.log.read(row));
}

/** The plain reads of what belongs to workflow runs. */
function shelfOfRuns(connection: Connection): Pick<Shelf, "earliestRunEnd" | "messagesOfRun" | "waitersOfEvent"> {
  const read = reader(connection);
  const { dialect } = connection;
  return {
    earliestRunEnd: async (account, { failed }) => {
      const first = `select min(ended_at) as at from runs ${dialect.by("runs_end")} where ended_at is not null and account = ? and failed = ?`;
      const [row] = await connection.query(first, [account, failed ? 1 : 0]);
      return typeof row?.at === "number" ? row.at : null;
    },
    messagesOfRun: (account, run) =>
      read(tables.messages, `${dialect.by("messages_run")} where run is not null and account = ? and run = ? order by id`, [account, run]),
    waitersOfEvent: (event, range) => {
      const { where, values } = stretch(range, { of: "waiters", dialect });
      return read(tables.waiters, `${dialect.by("waiters_event")} ${where} and event = ? order by id limit ?`, [
        ...values,
        event,
        range.limit,
      ]);
    },
  };
}

type Stretch = Pick<Range, "account" | "after" | "before">;

function stretch(
  { account, after, before }: Stretch,
  { of, dialect }: { of: TableName; dialect: Dialect },
): { where: string; values: Value[] } {
  const id = tables[of].key.at(-1) ?? "id";
  const conditions: [string, Value][] = [["account = ?", account]];
  if (after !== undefined) conditions.push([`${id} > ?`, after]);
  if (before !== undefined) conditions.push([`${id} < ?`, before]);
  if (of === "log" && dialect.forgottenUpTo) conditions.push([`${id} > ${dialect.forgottenUpTo("?")}`, account]);
  return { where: `where ${conditions.map(([text]) => text).join(" and ")}`, values: conditions.map(([, value]) => value) };
}
