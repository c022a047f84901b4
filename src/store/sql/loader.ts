import type { CountNeed, OfRunNeed, StepsNeed } from "../../core/decision/command.ts";
import { firstIdAt } from "../../core/values/ids.ts";
import { placesOf } from "../../core/sending/quotas.ts";
import { dayOf, ofDay } from "../../core/search/timeIndex.ts";
import type { AccountId, LogRow } from "../../core/model/message.ts";
import { endedWithServer } from "../../core/admission/lease.ts";
import { noBytes } from "../../core/model/message.ts";
import type { SentStep, Step } from "../../core/model/run.ts";
import { listRunBounds, toStepId } from "../../core/model/stepId.ts";
import type { Connection } from "./database.ts";
import { bytesOfRow } from "../batch/historyBytes.ts";
import { dueIn } from "./dueRows.ts";
import type { Loader } from "../batch/loader.ts";
import { keyOfPlace } from "../batch/quotaCounts.ts";
import { isIntact } from "./checked.ts";
import { reader, readRows, rows, stretch, within } from "./rows.ts";
import { byKey, columnsOf, eachByItself, inOrderOfKeys, isValue, keyValues } from "./statements.ts";
import type { Columns } from "./tables.ts";
import { tables } from "./tables.ts";

const loaders = new WeakMap<Connection, Loader>();

export function loaderOf(connection: Connection): Loader {
  let loader = loaders.get(connection);
  if (!loader) loaders.set(connection, (loader = makeLoader(connection)));
  return loader;
}

function makeLoader(connection: Connection): Loader {
  const { messages } = tables;
  const { dialect } = connection;
  const list = reader(connection);
  const leasedByOthers = `where due_at > ${endedWithServer} and leased_by <> ? order by due_at, id limit ?`;
  const ofSession = `(select id from nodes where id = ? and session = ?${dialect.lock("nodes")})`;
  // The bounds keep it from going through all that is due, or is delayed for long.
  const leasedInSession = `where due_at > ? and due_at <= ? and leased_by = ${ofSession}
    order by due_at, id limit ?${dialect.lock(messages.name, "skip locked")}`;
  return {
    rows: (name, keys, how) => rows(connection, name, keys, { to: "take", ...how }),
    due: dueIn(connection),
    ofRuns: ofRunsIn(connection),
    ...historiesOf(connection),
    heads: headsIn(connection),
    leasedByOthers: ({ node, session, limit }) =>
      session === undefined
        ? list(messages, leasedByOthers, [node, limit])
        : list(messages, leasedInSession, [session.after, session.until, node, session.number, limit]),
    ...expiredOf(connection),
    kept: keptIn(connection),
    counts: countsIn(connection),
  };
}

/**
 * Where there is room, those take turns who want to count the same, and count again: each statement sees what was stored when it was asked.
 * Whoever has no room anyway makes nobody wait.
 */
function countsIn(connection: Connection): Loader["counts"] {
  const { dialect } = connection;
  const { from, column } = dialect.given(types.place);
  const countOf = (table: "groups" | "schedules" | "sources" | "tokens" | "flows"): string => {
    const { name, key } = tables[table];
    const isMeant = `${name}.account = ${column(0)} and ${name}.${key.at(-1)} > ${column(1)} and ${name}.${key.at(-1)} < ${column(2)}`;
    const some = `select 1 as one from ${name} where ${isMeant} limit ${column(3)}`;
    return `select ${column(4)} as at, (select count(*) from (${some}) as counted) as n${from}`;
  };
  const count = async (needs: readonly CountNeed[]): Promise<number[]> => {
    const asked = Map.groupBy(needs.entries(), ([, { name }]) => placesOf(name).table);
    const found = [...asked].map(([table, some]) =>
      connection.each(
        countOf(table),
        types.place,
        some.map(([at, { account, name, most }]) => [account, ...placesOf(name).within, most, at]),
      ),
    );
    const counts = needs.map(() => 0);
    for (const row of (await Promise.all(found)).flat()) counts[Number(row.at)] = Number(row.n);
    return counts;
  };
  return async (needs) => {
    const counts = await count(needs);
    const roomy = [...needs.entries()].filter(([at, { most }]) => (counts[at] ?? 0) < most);
    if (!dialect.turn || roomy.length === 0) return counts;
    const names = roomy.map(([, { account, name }]) => [keyOfPlace(account, name)]).sort(byKey(1));
    // Not waited for: a connection keeps the order.
    const turns = connection.each(dialect.turn(dialect.given(["text"])), ["text"], names);
    const [again] = await Promise.all([count(roomy.map(([, need]) => need)), turns]);
    for (const [n, [at]] of roomy.entries()) counts[at] = again[n] ?? 0;
    return counts;
  };
}

/** The first of many lines: of each the index is read from its beginning. */
function headsIn(connection: Connection): Loader["heads"] {
  const { messages } = tables;
  const { dialect } = connection;
  const types = ["text", "text", "integer"] as const;
  const { also, column } = dialect.given(types);
  const ofOne = `select ${columnsOf(messages)} from ${messages.name} ${dialect.by("messages_waitlist")} where waitlist is not null
    and account = ${column(0)} and ${isValue("waitlist", column(1))} order by waitlist, id${dialect.lock(messages.name)} limit ${column(2)}`;
  const statement = eachByItself({ also }, messages.name, ofOne);
  return async (heads) => {
    // In the same order on all nodes.
    const lines = heads.map(({ account, line, limit }): [string, string, number] => [account, line, limit]).sort(byLine);
    return (await connection.each(statement, types, lines)).map((row) => messages.read(row, connection.seals));
  };
}

const byLine = ([account, line]: [string, string, number], [other, next]: [string, string, number]): number =>
  account === other ? (line < next ? -1 : 1) : account < other ? -1 : 1;

/** Entries of messages in the kept log. */
function keptIn(connection: Connection): Loader["kept"] {
  const { keptLog } = tables;
  const { dialect } = connection;
  const keyTypes = ["text", "text"] as const;
  const { also, column } = dialect.given(keyTypes);
  const ofOne = `select ${columnsOf(keptLog, { bodies: false })} from kept_log ${dialect.by("kept_log_message")}
    where kept_log.account = ${column(0)} and kept_log.message_id = ${column(1)} and kept_log.id <> '' order by kept_log.id`;
  const statement = eachByItself({ also }, "kept_log", ofOne);
  return async (messages) => (await connection.each(statement, keyTypes, messages.map(keyValues))).map((row) => keptLog.read(row));
}

/**
 * What is past its time. Nodes that ask for the same account take turns, so that none moves an entry to the kept log of which another one has
 * just removed the end.
 */
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
  const ended = `where account = ? and expires_at < ? and key <> '' order by expires_at, key limit ?`;
  const usageWithin = `${within} limit ?${dialect.lock(tables.usage.name)}`;
  return {
    expired: async ({ account, limit, ...before }) => {
      // Not waited for: a connection keeps the order.
      const turn = dialect.turn ? connection.each(dialect.turn(dialect.given(["text"])), ["text"], [[`log of ${account}`]]) : null;
      const [oldLog, oldKept, oldLetters, endedDeduplications, oldAudit, oldSightings, succeeded, failed, usage] = await Promise.all([
        oldestLog(account, firstIdAt("log", before.logBefore), limit),
        list(tables.keptLog, oldest, [account, firstIdAt("log", before.keptLogBefore), limit], { bodies: false }),
        list(deadLetters, oldest + dialect.lock(deadLetters.name), [account, firstIdAt("dlq", before.deadLettersBefore), limit], {
          bodies: false,
        }),
        list(deduplications, ended + dialect.lock(deduplications.name), [account, before.deduplicationsBefore, limit]),
        list(tables.audit, oldest, [account, firstIdAt("aud", before.auditBefore), limit]),
        list(tables.sightings, oldest, [account, ofDay(dayOf(before.sightingsBefore)), limit]),
        list(runs, endedRuns, [account, 0, before.runsBefore, limit]),
        list(runs, endedRuns, [account, 1, before.failedRunsBefore, limit]),
        Promise.all(before.usage.map((ids) => list(tables.usage, usageWithin, [account, ids.after, ids.before, limit]))),
        turn,
      ]);
      const gone = [...succeeded, ...failed];
      const steps: Step[] = [];
      for (const { id } of gone) {
        if (steps.length < limit)
          steps.push(...(await list(tables.steps, `${within} limit ?`, [account, ...idsOf(id), limit - steps.length], { bodies: false })));
      }
      const found = { log: oldLog, keptLog: oldKept, deadLetters: oldLetters, deduplications: endedDeduplications };
      return { ...found, audit: oldAudit, sightings: oldSightings, runs: gone, steps, usage: usage.flat() };
    },
  };
}

/** What is asked for by: an account, and a run or a stretch of ids. */
const types = {
  run: ["text", "text"],
  stretch: ["text", "text", "text"],
  event: ["text", "text", "text", "text"],
  sent: ["text", "text", "text", "integer", "integer"],
  place: ["text", "text", "text", "integer", "integer"],
} as const;

/** What belongs to runs: each table by itself, and of waiters and notifications those of one event, where no others are needed. */
function ofRunsIn(connection: Connection): Loader["ofRuns"] {
  const { messages, waiters, notifications, steps } = tables;
  const { dialect, seals } = connection;
  const ofRun = dialect.given(types.run);
  const ofOne = (columns: string): string => `select ${columns} from messages ${dialect.by("messages_run")} where messages.run is not null
    and account = ${ofRun.column(0)} and ${isValue("run", ofRun.column(1))} order by run, id`;
  const ofMessages = inOrderOfKeys(dialect, messages, { of: ofRun, ofOne });
  const sized = `notifications.account, notifications.id, notifications.kind, notifications.event, notifications.created_at,
    coalesce(length(notifications.body), 0) as size`;
  const columns = { waiters: columnsOf(waiters), notifications: sized, steps: columnsOf(steps, { bodies: false }) };
  const within = (name: keyof typeof columns): string => {
    const { also, column } = dialect.given(types.stretch);
    const found = `select ${columns[name]} from ${name} where ${name}.account = ${column(0)} and ${name}.id > ${column(1)} and ${name}.id < ${column(2)}
      order by ${name}.id`;
    return eachByItself({ also }, name, name === "steps" ? found : found + dialect.lock(name));
  };
  const ofEvent = (name: "waiters" | "notifications"): string => {
    const { also, column } = dialect.given(types.event);
    const hint = name === "waiters" ? ` ${dialect.by("waiters_event")}` : "";
    const found = `select ${columns[name]} from ${name}${hint} where ${name}.account = ${column(0)} and ${name}.id > ${column(1)}
      and ${name}.id < ${column(2)} and ${name}.event = ${column(3)} and ${name}.id <> '' order by ${name}.id${dialect.lock(name)}`;
    return eachByItself({ also }, name, found);
  };
  const all = { waiters: within("waiters"), notifications: within("notifications"), steps: within("steps") };
  const some = { waiters: ofEvent("waiters"), notifications: ofEvent("notifications") };
  return async (needs) => {
    const stretches = (table: OfRunNeed["table"], hasEvent: boolean): string[][] =>
      needs
        .filter((need) => need.table === table && (need.event !== undefined) === hasEvent)
        .map(({ account, run, event }) => [account, ...idsOf(run)].concat(event ?? []))
        // In the same order on all nodes.
        .sort(byKey(4));
    const found = async (name: keyof typeof some): Promise<Columns[]> => {
      const [whole, part] = await Promise.all([
        eachOf(connection, all[name], types.stretch, stretches(name, false)),
        eachOf(connection, some[name], types.event, stretches(name, true)),
      ]);
      return whole.concat(part);
    };
    const runs = needs.filter(({ table }) => table === "messages").map(({ account, run }) => [account, run]);
    const [inMessages, inWaiters, inNotifications, inSteps] = await Promise.all([
      eachOf(connection, ofMessages, types.run, runs),
      found("waiters"),
      found("notifications"),
      eachOf(connection, all.steps, types.stretch, stretches("steps", false)),
    ]);
    return {
      messages: inMessages.map((row) => messages.read(row, seals)),
      waiters: readRows(connection, waiters, inWaiters),
      notifications: inNotifications.map((row) => notifications.read(row, seals)),
      steps: readRows(connection, steps, inSteps),
    };
  };
}

/** The stretch of the ids of what belongs to a run. */
function idsOf(run: string): [string, string] {
  const { after, before } = listRunBounds(run);
  return [after, before];
}

/** Reads that take nothing away from others: histories never change. */
function historiesOf(connection: Connection): Pick<Loader, "steps" | "sizesOfSteps" | "histories"> {
  const { dialect } = connection;
  const { also, from, column } = dialect.given(types.stretch);
  // One step is a stretch that begins and ends with it.
  const isWithin = `steps.account = ${column(0)} and steps.id >= ${column(1)} and steps.id <= ${column(2)}`;
  const whole = eachByItself({ also }, "steps", `select ${columnsOf(tables.steps)} from steps where ${isWithin}`);
  const size = `select (select coalesce(sum(${bytesOfRow} + coalesce(length(steps.body), 0)), 0) from steps where ${isWithin}) as size${from}`;
  const sent = dialect.given(types.sent);
  const sentOne = `select ${sent.column(4)} as at, ${columnsOf(tables.steps)} from steps
    where steps.account = ${sent.column(0)} and steps.id > ${sent.column(1)} and steps.id < ${sent.column(2)} and steps.position <= ${sent.column(3)}`;
  const upTo = eachByItself(sent, "steps", sentOne);
  const stretchOf = ({ account, run, slot }: StepsNeed): string[] =>
    slot === undefined ? [account, ...idsOf(run)] : [account, toStepId(run, slot), toStepId(run, slot)];
  return {
    steps: async (of) => readRows(connection, tables.steps, await eachOf(connection, whole, types.stretch, of.map(stretchOf))),
    sizesOfSteps: async (of) => (await eachOf(connection, size, types.stretch, of.map(stretchOf))).map((row) => Number(row.size)),
    histories: async (of) => {
      const asked = of.map((need, at) => [need.account, ...idsOf(need.run), need.upTo, at]);
      const found = Map.groupBy(await eachOf(connection, upTo, types.sent, asked), (row) => Number(row.at));
      const sentIn = (rows: readonly Columns[]): SentStep[] => rows.flatMap((row) => soundIn(connection, row));
      return of.map((_, at) => sentIn((found.get(at) ?? []).sort((a, b) => Number(a.position) - Number(b.position))));
    },
  };
}

/** Puts nothing where nothing is asked. */
const eachOf = async (connection: Connection, ...[sql, columns, rows]: Parameters<Connection["each"]>): Promise<Columns[]> =>
  rows.length === 0 ? [] : connection.each(sql, columns, rows);

/** A step, or nothing if it is damaged: then its history has a gap. */
function soundIn(connection: Connection, { at: _at, ...step }: Columns): SentStep[] {
  if (isIntact(step)) return [sentOf(step)];
  readRows(connection, tables.steps, [step]);
  return [];
}

/** Most of a step is not looked at here, and this is on the way of every message of a run. */
const sentOf = ({ position, message_id: messageId, call_type: callType, body }: Columns): SentStep => ({
  position: Number(position),
  messageId: String(messageId),
  callType: callType as Step["callType"],
  body: body instanceof Uint8Array ? body : noBytes,
});
