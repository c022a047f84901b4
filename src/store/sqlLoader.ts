import type { LineHead, OfRunNeed, StepsNeed } from "../core/command.ts";
import { firstIdAt } from "../core/ids.ts";
import type { AccountId, LogRow, Millis, Schedule } from "../core/message.ts";
import { noBytes } from "../core/message.ts";
import type { SentStep, Step } from "../core/run.ts";
import { stepKey } from "../core/run.ts";
import type { Connection } from "./database.ts";
import { bytesOfRow } from "./historyBytes.ts";
import type { Loader } from "./loader.ts";
import { fittingPage } from "./shelf.ts";
import { reader, rows, stretch, within } from "./sqlRows.ts";
import type { Columns } from "./tables.ts";
import { tables } from "./tables.ts";

const loaders = new WeakMap<Connection, Loader>();

export function loaderOf(connection: Connection): Loader {
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
      const [oldLog, oldLetters, endedDeduplications, oldAudit, succeeded, failed, usage] = await Promise.all([
        oldestLog(account, firstIdAt("log", before.logBefore), limit),
        list(deadLetters, oldest + dialect.lock(deadLetters.name), [account, firstIdAt("dlq", before.deadLettersBefore), limit], {
          bodies: false,
        }),
        list(deduplications, ended + dialect.lock(deduplications.name), [account, before.deduplicationsBefore, limit]),
        list(tables.audit, oldest, [account, firstIdAt("aud", before.auditBefore), limit]),
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
      const found = { log: oldLog, deadLetters: oldLetters, deduplications: endedDeduplications, audit: oldAudit };
      return { ...found, runs: gone, steps, usage: usage.flat() };
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
