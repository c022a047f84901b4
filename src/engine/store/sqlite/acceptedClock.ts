import { isOfWrongClock, reschedule, shiftLimiter, shiftTime } from "../../core/cluster/clockShift.ts";
import type { ClockLead } from "../../core/cluster/clockShift.ts";
import { holders } from "../../core/model/messageState.ts";
import type { Millis } from "../../core/values/basics.ts";
import type { Rows } from "../../core/decision/command.ts";
import { firstIdAt } from "../../core/values/ids.ts";
import { hour } from "../../core/values/time.ts";
import type { DatabaseConnection } from "../sql/database.ts";
import { parseDetail } from "../layout/columns.ts";
import { toRows } from "../sql/rows.ts";
import { listColumns } from "../sql/statements.ts";
import type { Columns, Value } from "../layout/table.ts";
import { tables } from "../catalog/tables.ts";
import { maxLead, readLatestUsed } from "./storeTime.ts";

/** Returns why a server does not start with this clock, or null if it does. */
export async function findClockRefusal(connection: Querying, clock: Millis): Promise<string | null> {
  const latestId = await readLatestUsed(connection);
  if (latestId === null) return null;
  const usedAt = (await readAccepted(connection, latestId)) ?? latestId;
  return usedAt - clock <= maxLead ? null : formatClockRefusal({ clock, usedAt });
}

/** Returns why the server does not start. */
export const formatClockRefusal = ({ clock, usedAt }: ClockLead): string =>
  `the clock shows ${new Date(clock).toISOString()}, ` +
  `but the store has used ${new Date(usedAt).toISOString()}, ` +
  "which is more than an hour later; if the clock is wrong, set it right; if the clock is right, and was " +
  "wrong before, waypost start --accept-clock continues: stored delays move back by the difference; until " +
  "the clock passes the later time, history is not removed by its age, and searches by time miss new " +
  "messages";

/** The id of the row of `server_settings` with the accepted clock. */
const settingId = "clock";

/** An accepted lead. `latestAt`: the latest time used since then, to a minute. */
type Acceptance = ClockLead & { latestAt?: Millis };

/**
 * Returns the latest time used since a person accepted that ids are ahead of the clock up to `latestId`.
 * Returns null if nobody did. Later ids continue just above it: 10,000 of them take a millisecond.
 */
export async function readAccepted({ query }: Querying, latestId: Millis): Promise<Millis | null> {
  const [row] = await query("select detail from server_settings where id = ?", [settingId]);
  if (!row) return null;
  const { clock, usedAt, latestAt = clock } = parseDetail<Acceptance>(row);
  return latestId - usedAt <= hour ? latestAt : null;
}

/** Stores the latest time used since the acceptance, so that a clock that goes back again is noticed. */
export async function writeLatestAt({ query }: Querying, latestAt: Millis): Promise<void> {
  const [row] = await query("select detail from server_settings where id = ?", [settingId]);
  if (!row) return;
  const acceptance: Acceptance = { ...parseDetail<Acceptance>(row), latestAt };
  await query("update server_settings set detail = ? where id = ?", [JSON.stringify(acceptance), settingId]);
}

/**
 * Accepts that the clock is right and that the store has used later times: moves stored times back by the
 * lead, and stores the acceptance of ids up to `latestId`. Must run in one transaction. It writes all rows of
 * messages that wait, so it takes a minute for a million of them.
 */
export async function acceptClock(
  connection: DatabaseConnection,
  lead: ClockLead,
  latestId: Millis,
): Promise<void> {
  const { query } = connection;
  await shiftMessages(connection, lead);
  await shiftEach(connection, lead, {
    table: "waiters",
    key: ["account", "id"],
    time: "due_at",
    isShifted: (row) => parseDetail<{ createdAt: Millis }>(row).createdAt > lead.clock,
  });
  for (const [table, name, time] of otherTimes) {
    const isShifted = (row: Columns): boolean => isOfWrongClock(lead, Number(row[time]));
    await shiftEach(connection, lead, { table, key: ["account", name], time, isShifted });
  }
  await rewriteEach(connection, "limiters", (limiter) => shiftLimiter(lead, limiter));
  await rewriteEach(connection, "schedules", (schedule) => reschedule(lead, schedule));
  const acceptance: Acceptance = { clock: lead.clock, usedAt: latestId };
  await query(
    "insert into server_settings (id, detail) values (?, ?) " +
      "on conflict (id) do update set detail = excluded.detail",
    [settingId, JSON.stringify(acceptance)],
  );
}

/** Tables with times of which nothing else tells when they were made, and the second column of their keys. */
const otherTimes = [
  ["deduplications", "key", "expires_at"],
  ["host_waitlists", "host", "due_at"],
  ["jobs", "id", "due_at"],
  ["alerts", "id", "due_at"],
] as const;

type Querying = Pick<DatabaseConnection, "query">;

/**
 * Moves the due times of messages that the wrong clock created, and of retries whose due time is one of that
 * clock.
 */
const shiftMessages = (connection: DatabaseConnection, lead: ClockLead): Promise<void> => {
  const firstWrong = firstIdAt("msg", lead.clock + 1);
  return shiftEach(connection, lead, {
    table: "messages",
    key: ["account", "id"],
    time: "due_at",
    isShifted: ({ id, leased_by: leasedBy, attempts, due_at: dueAt }) =>
      // A lease of a node has ended with the server. A receiver still holds its attempt.
      (leasedBy === null || holders.includes(String(leasedBy))) &&
      (String(id) >= firstWrong ||
        ((Number(attempts) > 0 || leasedBy !== null) && isOfWrongClock(lead, Number(dueAt)))),
  });
};

type Shifted = {
  table: string;
  key: readonly [string, string];
  time: string;
  isShifted(row: Columns): boolean;
};

const rowsPerRead = 500;

/** Moves a time of the rows of a table that is after the clock, if `isShifted`. */
async function shiftEach(
  { query }: DatabaseConnection,
  lead: ClockLead,
  { table, key: [first, second], time, isShifted }: Shifted,
): Promise<void> {
  const selectSql =
    `select * from ${table} where (${first}, ${second}) > (?, ?) and ${time} > ? ` +
    `order by ${first}, ${second} limit ${rowsPerRead}`;
  const updateSql = `update ${table} set ${time} = ? where ${first} = ? and ${second} = ?`;
  for (let after: readonly [Value, Value] = ["", ""]; ;) {
    const rows = await query(selectSql, [...after, lead.clock]);
    for (const row of rows) {
      after = [String(row[first]), String(row[second])];
      if (isShifted(row)) await query(updateSql, [shiftTime(lead, Number(row[time])), ...after]);
    }
    if (rows.length < rowsPerRead) return;
  }
}

/** Replaces the rows of a table that `change` changes. It returns null for the others. */
async function rewriteEach<T extends "limiters" | "schedules">(
  connection: DatabaseConnection,
  name: T,
  change: (row: Rows[T]) => Rows[T] | null,
): Promise<void> {
  const table = tables[name];
  const columns = Object.keys(table.columns).filter((column) => !table.key.includes(column));
  const selectSql =
    `select ${listColumns(table)} from ${name} where (account, id) > (?, ?) ` +
    "order by account, id limit 1";
  const updateSql =
    `update ${name} set ${columns.map((column) => `${column} = ?`).join(", ")} ` +
    "where account = ? and id = ?";
  for (let after: readonly [Value, Value] = ["", ""]; ;) {
    const [found] = await connection.query(selectSql, [...after]);
    if (!found) return;
    after = [String(found.account), String(found.id)];
    const [row] = toRows(connection, table, [found]);
    const changed = row === undefined ? null : change(row);
    if (changed === null) continue;
    const written = table.write(changed, connection.cipher);
    await connection.query(updateSql, [...columns.map((column) => written[column] ?? null), ...after]);
  }
}
