import { systemClock } from "../../engine/clock/clock.ts";
import { quarantineError } from "../../engine/core/commands/quarantine.ts";
import { isWaiterOf } from "../../engine/core/model/run.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import { minute } from "../../engine/core/values/time.ts";
import { createQueries } from "../../engine/store/catalog/queries.ts";
import { NoStore } from "../../engine/store/layout/storageErrors.ts";
import type { OldestDue } from "../../engine/store/layout/storageReads.ts";
import { formatMoved, readMoved } from "../../engine/store/sql/movedMark.ts";
import { assertSchema } from "../../engine/store/sql/schema.ts";
import { findClockRefusal } from "../../engine/store/sqlite/acceptedClock.ts";
import type { ServerConfig } from "../../settings/config.ts";
import { hasStore } from "../../settings/dataFolder.ts";
import { assertGivenAccount } from "../../settings/givenAccount.ts";
import { assertKeys } from "../../settings/encryptionKeys.ts";
import type { FindConditions } from "../operation.ts";
import { checkConditions } from "./conditions.ts";
import type { Check, Finding, CheckResult } from "./finding.ts";
import { formatSpan, ok, problem, runChecks, toErrorText, warning } from "./finding.ts";
import type { StoreView } from "./openForChecks.ts";
import { openForChecks } from "./openForChecks.ts";
import { listPostgresChecks } from "./postgres.ts";

/** `finders`: find what is wrong with the things of operations. `also` reads more while the store is open. */
type StoreCheckOptions = {
  isServed: boolean;
  finders: readonly FindConditions[];
  also?: (view: StoreView) => Promise<void>;
};

/**
 * Checks the store of the settings, and changes nothing in it. Its server may be running; `isServed` says
 * whether one does.
 */
export async function checkStore(
  settings: ServerConfig,
  { isServed, finders, also }: StoreCheckOptions,
): Promise<Finding[]> {
  const { data, databaseUrl } = settings;
  if (databaseUrl === "" && !hasStore(data))
    return runChecks([
      { name: "store", run: () => warning(`${data} has no store`, "name the data folder with --data") },
    ]);
  let view: StoreView;
  try {
    view = await openForChecks(settings);
  } catch (error) {
    return [
      { check: "store", verdict: "problem", text: toErrorText(error), fix: openAdvice(settings, error) },
    ];
  }
  try {
    const schema = await runChecks([{ name: "schema", run: () => checkSchema(view) }]);
    if (schema.some(({ verdict }) => verdict === "problem")) return schema;
    const found = await runChecks(listStoreChecks(view, { settings, isServed, finders }));
    await also?.(view);
    return [...schema, ...found];
  } finally {
    await view.close();
  }
}

function openAdvice({ databaseUrl }: ServerConfig, error: unknown): string {
  if (error instanceof NoStore) return "start the server once, or name another database";
  return databaseUrl === ""
    ? "run the command as the user of the server; if the file is damaged, waypost restore <backup>"
    : "check WAYPOST_DATABASE_URL with psql, and that PostgreSQL runs";
}

const listStoreChecks = (
  view: StoreView,
  { settings, isServed, finders }: Omit<StoreCheckOptions, "also"> & { settings: ServerConfig },
): Check[] => [
  ...(view.database === "postgres"
    ? listPostgresChecks(view)
    : [{ name: "times", run: () => checkTimes(view) }]),
  { name: "moved", run: () => checkMoved(view) },
  { name: "keys", run: () => checkStoredKeys(view) },
  { name: "credentials", run: () => checkGivenAccount(view, settings) },
  { name: "integrity", run: () => checkIntegrity(view) },
  { name: "due", run: () => checkDue(view, isServed) },
  { name: "waiters", run: () => checkWaiters(view) },
  { name: "quarantine", run: () => checkQuarantine(view) },
  { name: "conditions", run: () => checkConditions(view, finders) },
];

async function checkSchema({ connection, database }: StoreView): Promise<CheckResult> {
  await assertSchema(connection, database);
  return ok("the tables are those of this version");
}

async function checkMoved({ connection }: StoreView): Promise<CheckResult> {
  const moved = await readMoved(connection);
  return moved === null
    ? ok("waypost migrate-store has not moved it elsewhere")
    : problem(
        `${formatMoved(moved)}, so no server starts on it`,
        "use the other store, or waypost start --force if this one is in use",
      );
}

/** Finds what keeps `waypost start` from starting. */
async function checkTimes({ connection }: StoreView): Promise<CheckResult> {
  const refusal = await findClockRefusal(connection, systemClock.now());
  return refusal === null
    ? ok("the store has used no time that is far ahead of the clock, or it was accepted")
    : problem(refusal, "timedatectl set-ntp true, or waypost start --accept-clock");
}

async function checkStoredKeys({ reads, keys, database }: StoreView): Promise<CheckResult> {
  try {
    await assertKeys(createQueries(reads), keys);
    // Fails if a key is not the one that encrypted the secrets.
    await reads.accounts();
  } catch (error) {
    return problem(toErrorText(error), "put the keys file back from its copy, or set WAYPOST_KEYS_FILE");
  }
  return keys === null && database === "postgres"
    ? warning(
        "secrets are stored unencrypted",
        "waypost keys new, then WAYPOST_KEYS, then waypost keys reseal",
      )
    : ok("every secret can be decrypted");
}

/** Finds a rotation after which the credentials of the settings refuse the next start. */
async function checkGivenAccount({ reads }: StoreView, settings: ServerConfig): Promise<CheckResult> {
  try {
    assertGivenAccount(settings, await reads.accounts());
  } catch (error) {
    return problem(
      `the next start will be refused: ${toErrorText(error)}`,
      "set the credentials of the settings to those of waypost credentials",
    );
  }
  return ok("the settings have no credentials, or those of the store");
}

/** Above this size of a file, only rows are sampled: reading all pages would take long. */
const mostPages = 65_536;
/** How many of the oldest and of the newest rows of a table are read. */
const sampledRows = 200;
const sampledTables = ["storedMessages", "deadLetters", "urlGroups", "schedules", "steps"] as const;

async function checkIntegrity(view: StoreView): Promise<CheckResult> {
  const { connection, database, damage } = view;
  const isSmall = database === "sqlite" && (await countPages(view)) <= mostPages;
  if (isSmall) {
    const rows = await connection.query("pragma quick_check(3)", []);
    const found = rows.map((row) => String(row.quick_check)).filter((text) => text !== "ok");
    if (found.length > 0) return problem(`the file is damaged: ${found.join("; ")}`, restoreAdvice);
  }
  let sampled = 0;
  for (const account of await listAccountIds(view))
    for (const table of sampledTables) sampled += await readSample(view, table, account);
  if (damage.length > 0)
    return problem(`${damage.length} of ${sampled} rows are damaged: ${damage[0]}`, restoreAdvice);
  return ok(`${isSmall ? "all pages are sound, and" : "a sample of"} ${sampled} rows can be read`);
}

/** Reads the oldest and the newest rows of a table, each once. Returns their number. */
async function readSample(
  { reads }: StoreView,
  table: (typeof sampledTables)[number],
  account: AccountId,
): Promise<number> {
  const oldest = await reads.range(table, { account, limit: sampledRows });
  const last = oldest.at(-1);
  if (!last || oldest.length < sampledRows) return oldest.length;
  const after = "id" in last ? last.id : last.name;
  const newest = await reads.range(table, { account, after, descending: true, limit: sampledRows });
  return oldest.length + newest.length;
}

const restoreAdvice = "waypost restore <backup> --data <new folder>";

async function countPages({ connection }: StoreView): Promise<number> {
  const [row] = await connection.query("pragma page_count", []);
  return Number(row?.page_count ?? 0);
}

/** The first accounts by id. Of more accounts, the others are not looked at. */
const mostAccounts = 1_000;

async function listAccountIds({ connection }: StoreView): Promise<AccountId[]> {
  const rows = await connection.query("select id from accounts order by id limit ?", [mostAccounts]);
  return rows.map(({ id }) => String(id));
}

/** Due rows are taken within seconds, or in order if more are due than can be sent. */
const lateAfter: Millis = minute;

const dueNames: Readonly<Record<keyof OldestDue, string>> = {
  messages: "a message",
  leases: "a lease",
  hostWaitlists: "a waitlist of a host",
  limiters: "a waitlist of a queue or key",
  schedules: "a schedule",
  waiters: "the timeout of a wait",
};

async function checkDue({ reads }: StoreView, isServed: boolean): Promise<CheckResult> {
  const now = systemClock.now();
  const late = Object.entries(await reads.oldestDue()).flatMap(([kind, at]) =>
    at !== null && now - at > lateAfter
      ? [`${dueNames[kind as keyof OldestDue]} is due since ${formatSpan(now - at)}`]
      : [],
  );
  if (late.length === 0) return ok("nothing is due for more than a minute");
  const text = late.join(", ");
  if (!isServed) return warning(`${text}; no server was found to send it`, "waypost start");
  return warning(text, "look for errors and for paused deliveries in the log of the server, or add a node");
}

/** How many waiters of an account are looked at. */
const sampledWaiters = 2_000;

async function checkWaiters(view: StoreView): Promise<CheckResult> {
  let seen = 0;
  const lost: string[] = [];
  for (const account of await listAccountIds(view)) {
    const waiters = await view.reads.range("waiters", { account, limit: sampledWaiters });
    const keys = waiters.map(({ runId }) => [account, runId] as const);
    const active = await view.reads.rows("activeRuns", keys);
    const byId = new Map(active.map((run) => [run.runId, run]));
    seen += waiters.length;
    lost.push(...waiters.filter((waiter) => !isWaiterOf(waiter, byId.get(waiter.runId))).map(({ id }) => id));
  }
  return lost.length === 0
    ? ok(`${seen} waiting steps, each of a run that has not ended`)
    : problem(
        `${lost.length} of ${seen} waiting steps belong to runs that have ended, such as ${lost[0]}`,
        "report a bug with waypost doctor --bundle; the steps do no harm",
      );
}

/** How many of the newest dead letters of an account are looked at. */
const sampledDeadLetters = 2_000;

async function checkQuarantine(view: StoreView): Promise<CheckResult> {
  const found: string[] = [];
  for (const account of await listAccountIds(view)) {
    const range = { account, descending: true, limit: sampledDeadLetters, bodies: false } as const;
    const letters = await view.reads.range("deadLetters", range);
    found.push(...letters.filter(({ error }) => error?.startsWith(quarantineError)).map(({ id }) => id));
  }
  return found.length === 0
    ? ok("no message is quarantined")
    : warning(
        `${found.length} messages failed because the storage refused their changes, such as ${found[0]}`,
        "read their dead letters (GET /v2/dlq), and send them again",
      );
}
