import { elapsed, systemClock } from "../../engine/clock/clock.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { second } from "../../engine/core/values/time.ts";
import type { DatabaseConnection } from "../../engine/store/sql/database.ts";
import type { Check, CheckResult } from "./finding.ts";
import { formatSpan, ok, problem, warning } from "./finding.ts";

/** Returns the checks of a PostgreSQL database. */
export const listPostgresChecks = ({ connection }: { connection: DatabaseConnection }): Check[] => [
  { name: "postgres", run: async () => judgeSettings(await readSettings(connection)) },
  { name: "connections", run: () => checkConnections(connection) },
  { name: "clock", run: () => checkDatabaseClock(connection) },
];

const settingNames = ["server_version", "server_version_num", "fsync", "full_page_writes"] as const;
const moreNames = ["synchronous_commit", "autovacuum", "transaction_read_only"] as const;

/** The settings of a database server, by name. */
export type PostgresSettings = Readonly<Record<string, string>>;

async function readSettings(connection: DatabaseConnection): Promise<PostgresSettings> {
  const columns = [...settingNames, ...moreNames].map((name) => `current_setting('${name}') as ${name}`);
  const [row] = await connection.query(`select ${columns.join(", ")}`, []);
  return Object.fromEntries(Object.entries(row ?? {}).map(([name, value]) => [name, String(value)]));
}

/** The oldest version that has the features that Waypost uses. */
const oldestVersion = 140_000;

const alter = (setting: string, value: string): string =>
  `psql: alter system set ${setting} = ${value}; select pg_reload_conf();`;

/** Judges the settings by which a database keeps what it has acknowledged. */
export function judgeSettings(settings: PostgresSettings): CheckResult {
  const version = `PostgreSQL ${settings.server_version}`;
  if (Number(settings.server_version_num) < oldestVersion)
    return problem(`${version} is too old; Waypost needs version 14`, "upgrade PostgreSQL");
  for (const name of ["fsync", "full_page_writes"])
    if (settings[name] === "off")
      return problem(
        `${version} has ${name} off: acknowledged messages are lost if its machine fails`,
        alter(name, "on"),
      );
  if (settings.synchronous_commit === "off")
    return problem(
      `${version} has synchronous_commit off: the last acknowledged messages are lost if it fails`,
      alter("synchronous_commit", "on"),
    );
  if (settings.transaction_read_only === "on")
    return problem(`${version} takes no changes: this is a standby, or read only`, "name the primary");
  return settings.autovacuum === "off"
    ? warning(`${version} has autovacuum off: the tables grow without end`, alter("autovacuum", "on"))
    : ok(`${version} keeps what it has acknowledged`);
}

/** The connections that must be free for another node. */
const connectionsPerNode = 8;

async function checkConnections(connection: DatabaseConnection): Promise<CheckResult> {
  const [row] = await connection.query(
    `select (select count(*) from pg_stat_activity where backend_type = 'client backend') as used,
      current_setting('max_connections')::bigint as most`,
    [],
  );
  const [used, most] = [Number(row?.used), Number(row?.most)];
  const text = `${used} of ${most} connections are in use`;
  return most - used < connectionsPerNode
    ? warning(`${text}; a node needs up to ${connectionsPerNode}`, alter("max_connections", String(2 * most)))
    : ok(text);
}

const toleratedOffset: Millis = second;

async function checkDatabaseClock(connection: DatabaseConnection): Promise<CheckResult> {
  const since = elapsed();
  const before = systemClock.now();
  const [row] = await connection.query(
    "select (extract(epoch from clock_timestamp()) * 1000)::bigint as now",
    [],
  );
  const roundTrip = elapsed() - since;
  const offset = before + roundTrip / 2 - Number(row?.now);
  const side = offset < 0 ? "behind" : "ahead of";
  const text = `the clock of this machine is ${formatSpan(Math.abs(offset))} ${side}`;
  return Math.abs(offset) > toleratedOffset + roundTrip / 2
    ? warning(
        `${text} that of the database; the round trip is ${formatSpan(roundTrip)}`,
        "timedatectl set-ntp true",
      )
    : ok(`${text} that of the database; the round trip is ${formatSpan(roundTrip)}`);
}
