// How fast are lists, and how steady is memory, with 1,000,000 dead letters, 3,000,000 log rows and 1,000,000
// unfinished messages?
//
// node bench/lists.ts [folder]
//
// LISTS_UNFINISHED_ONLY=200000 leaves out dead letters and the log, and has that many unfinished messages.
//
// Fills a SQLite file directly and reads the first page with each filter: for a rare value, a common value,
// and a value that does not occur. Times are CPU times, so they hardly depend on what else the machine does.

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Rows, TableName } from "../src/core/decision/command.ts";
import type { Filter } from "../src/core/search/filter.ts";
import { createIdGenerator } from "../src/core/values/ids.ts";
import type { UnfinishedFilter } from "../src/core/sending/listedState.ts";
import { toTag, makeTags, makeTagIds } from "../src/core/search/tags.ts";
import type { StoredMessage, LogState } from "../src/core/model/message.ts";
import { noBytes } from "../src/core/model/message.ts";
import { parseAddress } from "../src/core/values/url.ts";
import { readIndexInterval, listTimeIndexIds, makeTimeIndexKeys } from "../src/core/search/timeIndex.ts";
import type { Queries } from "../src/store/queries/index.ts";
import { createQueries } from "../src/store/queries/index.ts";
import { createSqlReads } from "../src/store/sql/reads.ts";
import { openSqlite } from "../src/store/sqlite/database.ts";
import type { Value } from "../src/store/sql/tables.ts";
import { tables } from "../src/store/sql/tables.ts";

const onlyUnfinished = Number(process.env["LISTS_UNFINISHED_ONLY"] ?? 0);
const isUnfinishedOnly = onlyUnfinished > 0;
const deadLetters = isUnfinishedOnly ? 0 : 1_000_000;
const delivered = isUnfinishedOnly ? 0 : 1_000_000;
const waiting = onlyUnfinished || 1_000_000;
const start = 1_800_000_000_000;
const folder = process.argv[3] ? "" : mkdtempSync(join(process.argv[2] ?? tmpdir(), "waypost-lists-"));
const file = process.argv[3] ?? join(folder, "waypost.db");

const newId = createIdGenerator(Math.random);
const rare = {
  labels: ["needle"],
  queue: "needle",
  scheduleId: "scd_needle",
  group: "needle",
  callerIp: "192.0.2.99",
};

/**
 * Returns the nth message. One message per part is rare. One in ten has a common label and key. Each host has
 * thousands.
 */
function makeMessage(n: number, time: number, isRare: boolean): StoredMessage {
  const key = isRare ? "needle" : n % 10 === 0 ? "common" : null;
  const plain = {
    labels: n % 10 === 0 ? ["common"] : [],
    queue: null,
    scheduleId: null,
    group: null,
    callerIp: "192.0.2.1",
  };
  return {
    account: "acc",
    id: newId("msg", time),
    brand: "svc",
    method: "POST",
    headers: [["Content-Type", "application/json"]],
    url: isRare ? "https://needle.example/rare" : `https://shop${n % 500}.example/hook`,
    body: new Uint8Array(200).fill(97),
    retries: 3,
    retryDelay: null,
    timeout: 1000,
    callback: null,
    failureCallback: null,
    deduplication: null,
    redaction: null,
    reportsOn: null,
    endpoint: null,
    createdAt: time,
    notBefore: time,
    startedAtOnce: true,
    ...(isRare ? rare : plain),
    flowControl: key === null ? null : { key, parallelism: 5, rate: null, period: null },
  };
}

/** Returns a writer that collects rows with their index values and writes them all at once. */
async function writer() {
  const database = openSqlite(file);
  await database.createTables();
  await database.connection.query("pragma synchronous = off", []);
  const { connection } = database;
  const rows = new Map<TableName, Value[][]>();
  const put = <T extends TableName>(name: T, row: Rows[T]): void => {
    rows.set(name, rows.get(name) ?? []);
    rows.get(name)?.push(Object.values(tables[name].write(row)));
    for (const id of makeTagIds[name]?.(row) ?? []) put("tags", { account: "acc", id });
  };
  const seen = new Set<string>();
  const indexTime = (id: string, message: StoredMessage): void => {
    for (const indexId of listTimeIndexIds(makeTimeIndexKeys(message), readIndexInterval(id))) {
      if (seen.has(indexId)) continue;
      seen.add(indexId);
      put("timeIndex", { account: "acc", id: indexId });
    }
  };
  const flush = async (): Promise<void> => {
    await database.transaction(async () => {
      for (const [name, values] of rows) {
        const columns = Object.keys(tables[name].columns);
        const places = columns.map(() => "?").join(", ");
        const text = `insert into ${tables[name].name} (${columns.join(", ")}) values (${places})`;
        await connection.each(text, Object.values(tables[name].columns), values);
      }
    });
    rows.clear();
  };
  return {
    put,
    indexTime,
    flush,
    close: async () => {
      await connection.query("pragma wal_checkpoint(truncate)", []);
      database.close();
    },
  };
}

type Writer = Awaited<ReturnType<typeof writer>>;

function accept({ put, indexTime }: Writer, message: StoredMessage): void {
  put("storedMessages", message);
  indexTime(message.id, message);
}

type LogLine = { states: LogState[]; time: number; dlqId?: string };

function logStates(
  { put, indexTime }: Writer,
  message: StoredMessage,
  { states, time, dlqId }: LogLine,
): void {
  const id = newId("log", time);
  indexTime(id, message);
  put("log", {
    account: "acc",
    id,
    messageId: message.id,
    time,
    states,
    status: dlqId || states[0] === "ERROR" ? 500 : 200,
    error: null,
    nextDueAt: null,
    headers: [],
    body: noBytes,
    dlqId: dlqId ?? null,
    tags: makeTags(message),
  });
}

function addDelivered(to: Writer, n: number, time: number): void {
  const message = makeMessage(n, time, false);
  accept(to, message);
  logStates(to, message, { states: ["DELIVERED"], time: time + 1 });
}

function addDeadLetter(to: Writer, n: number, time: number): void {
  const isRare = n === deadLetters / 10;
  const message = makeMessage(n, time, isRare);
  accept(to, message);
  logStates(to, message, { states: ["ERROR", "RETRY"], time: time + 1 });
  const id = newId("dlq", time + 2);
  logStates(to, message, { states: ["ERROR", "FAILED"], time: time + 3, dlqId: id });
  to.put("deadLetters", {
    account: "acc",
    id,
    messageId: message.id,
    status: isRare ? 418 : 500,
    headers: [["A", "b"]],
    body: new Uint8Array(100),
    error: null,
    retried: 1,
    failureCallback: null,
    tags: [...makeTags(message), toTag.url(message.url), toTag.callerIp(message.callerIp ?? "")],
  });
}

function addWaiting(to: Writer, n: number, time: number): void {
  const message = { ...makeMessage(n, time, n === waiting / 2), startedAtOnce: false };
  accept(to, message);
  const state = makeState(n);
  to.put("messages", {
    account: "acc",
    id: message.id,
    ...state,
    lostAttempts: 0,
    size: 200,
    host: new URL(message.url).host,
    reportsOutcome: false,
    queue: message.queue,
    flowControlKey: message.flowControl?.key ?? null,
    slot: null,
    run: null,
    tags: makeTags(message),
    timeKeys: makeTimeIndexKeys(message),
    endpoint: parseAddress(message.url).endpoint,
  });
}

/**
 * One message in a thousand is in flight, one in a thousand is held by one of 2,000 keys, one in 50 is
 * retried.
 */
function makeState(n: number) {
  const due = {
    state: "pending",
    dueAt: start * 2 + (n % 7_919) * 1_000,
    leasedBy: null,
    waitlist: null,
  } as const;
  if (n % 1_000 === 1)
    return { ...due, state: "active", dueAt: start, leasedBy: "nod_1", attempts: 0 } as const;
  if (n % 1_000 === 2)
    return { ...due, state: "held", dueAt: null, waitlist: `key:k${n % 2_000}`, attempts: 0 } as const;
  return { ...due, attempts: n % 50 === 3 ? 1 : 0 };
}

async function fill(): Promise<void> {
  const to = await writer();
  const all = Math.max(deadLetters, delivered, waiting);
  for (let n = 0; n < all; n++) {
    const time = start + n * 10;
    if (n < delivered) addDelivered(to, n, time);
    if (n < deadLetters) addDeadLetter(to, n, time + 2);
    if (n < waiting) addWaiting(to, n, time + 6);
    if (n % 5_000 === 4_999) await to.flush();
  }
  // One cancelled message, which is rare here.
  const cancelled = makeMessage(0, start + all, false);
  accept(to, cancelled);
  logStates(to, cancelled, { states: ["CANCEL_REQUESTED", "CANCELLED"], time: start + all });
  await to.flush();
  await to.close();
}

const needle: [string, Filter][] = [
  ["rare label", { labels: ["needle"] }],
  ["rare queue", { queueNames: ["needle"] }],
  ["rare key", { flowControlKeys: ["needle"] }],
  ["rare schedule", { scheduleIds: ["scd_needle"] }],
  ["rare group", { topicNames: ["needle"] }],
  ["rare label and common key", { labels: ["needle", "other"], flowControlKeys: ["common", "needle"] }],
  ["common label", { labels: ["common"] }],
  ["common label and rare key", { labels: ["common", "needle"], flowControlKeys: ["needle"] }],
  ["label that is not there", { labels: ["none"] }],
  ["url of thousands", { urls: ["https://shop77.example/hook"] }],
  ["rare url", { urls: ["https://needle.example/rare"] }],
  ["rare callerIp", { callerIps: ["192.0.2.99"] }],
  ["no filter", {}],
  ["two hours in the middle", { from: start + 3_600_000, to: start + 2 * 3_600_000 }],
  ["rare label, reversed dates", { labels: ["needle"], from: start + 5_000, to: start }],
];
const deadLetterFilters: [string, Filter][] = [
  ["status 418", { responseStatuses: [418] }],
  ["status 500", { responseStatuses: [500] }],
];
const logFilters: [string, Filter][] = [
  ["state CANCELLED", { states: ["CANCELLED"] }],
  ["state FAILED", { states: ["FAILED"] }],
  ["state FAILED, rare label", { states: ["FAILED"], labels: ["needle"] }],
  ["state CREATED, rare label", { states: ["CREATED"], labels: ["needle"] }],
  ["rare host", { hosts: ["needle.example"] }],
  ["host of thousands", { hosts: ["shop77.example"] }],
  ["rare path", { paths: ["/rare"] }],
  ["rare path, common label", { paths: ["/rare"], labels: ["needle", "common"] }],
  ["path of all", { paths: ["/hook"] }],
];
const listFilters: [string, UnfinishedFilter][] = [
  ["state delivering", { listedStates: ["delivering"] }],
  ["state retrying", { listedStates: ["retrying"] }],
  ["state held", { listedStates: ["held"] }],
  ["state paused", { listedStates: ["paused"] }],
  ["state pending", { listedStates: ["pending"] }],
  ["gate key", { gates: ["key"] }],
  ["gate queue", { gates: ["queue"] }],
  ["2 attempts", { minAttempts: 2 }],
  ["due in one second", { dueFrom: start * 2 + 5_000, dueTo: start * 2 + 5_999 }],
  ["held with a rare path", { listedStates: ["held"], paths: ["/rare"] }],
];
const unfinishedFilters: [string, Filter][] = [
  ["rare host", { hosts: ["needle.example"] }],
  ["host of thousands", { hosts: ["shop77.example"] }],
  ["rare path", { paths: ["/rare"] }],
];

const p99 = (times: readonly number[]): string =>
  (times.toSorted((a, b) => a - b)[Math.ceil(times.length * 0.99) - 1] ?? 0).toFixed(1);

type Show = (
  list: string,
  what: string,
  run: () => Promise<{ found: number; cursor: string | null }>,
) => Promise<void>;

/** Shows how long the first pages of unfinished messages take, in both orders and directions. */
async function listUnfinishedPages(queries: Queries, show: Show): Promise<void> {
  for (const sort of ["created", "due"] as const)
    for (const order of ["earliestFirst", "latestFirst"] as const)
      for (const [what, filter] of [...needle, ...unfinishedFilters, ...listFilters])
        await show(`${sort}${order === "latestFirst" ? ", desc" : ""}`, what, async () => {
          const page = await queries.listUnfinished({
            ...{ account: "acc", filter, sort, order },
            ...{ cursor: null, count: 100 },
          });
          return { found: page.entries.length, cursor: page.cursor };
        });
}

async function runQueries(): Promise<void> {
  const allTimes: number[] = [];
  const database = openSqlite(file, { readOnly: true });
  const queries = createQueries(createSqlReads(database.connection));
  const show: Show = async (list, what, run) => {
    const times: number[] = [];
    let answer = { found: 0, cursor: null as string | null };
    for (let n = 0; n < 5; n++) {
      const at = process.cpuUsage();
      answer = await run();
      const { user, system } = process.cpuUsage(at);
      times.push((user + system) / 1_000);
    }
    allTimes.push(...times);
    const [first = 0, ...warm] = times;
    const best = warm.sort((a, b) => a - b)[1] ?? 0;
    const end = answer.cursor === null ? "end" : "more";
    console.log(
      `${list.padEnd(14)}${what.padEnd(32)}${first.toFixed(1).padStart(8)}` +
        `${best.toFixed(1).padStart(8)} ms ${answer.found} ${end}`,
    );
  };
  console.log("list          filter                             first     then    found");
  for (const order of isUnfinishedOnly ? [] : (["latestFirst", "earliestFirst"] as const)) {
    console.log(order);
    const common = { account: "acc", order, cursor: null, count: 100 };
    for (const [what, filter] of [...needle, ...deadLetterFilters]) {
      await show("dead letters", what, async () => {
        const { entries, cursor } = await queries.deadLetters({ ...common, filter });
        return { found: entries.length, cursor };
      });
    }
    for (const [what, filter] of [...needle, ...logFilters]) {
      await show("log", what, async () => {
        const { events, cursor } = await queries.log({ ...common, filter });
        return { found: events.length, cursor };
      });
    }
  }
  for (const [what, filter] of [...needle, ...unfinishedFilters]) {
    await show("unfinished", what, async () => {
      const { messageIds, cursor } = await queries.unfinished({
        account: "acc",
        filter,
        cursor: null,
        count: 100,
      });
      return { found: messageIds.length, cursor };
    });
  }
  await listUnfinishedPages(queries, show);
  await show("overview", "", async () => {
    const { unfinished } = await queries.situation("acc", start * 2);
    return { found: unfinished.count, cursor: null };
  });
  await show("hosts", "", async () => ({ found: (await queries.hosts("acc")).length, cursor: null }));
  console.log(
    `slowest of ${allTimes.length} pages: ${Math.max(...allTimes).toFixed(1)} ms; p99 ${p99(allTimes)} ms`,
  );
  console.log(`peak memory: ${Math.round(process.resourceUsage().maxRSS / 1024)} MiB`);
  database.close();
}

if (process.argv[3]) await runQueries();
else {
  const began = performance.now();
  await fill();
  const seconds = Math.round((performance.now() - began) / 1000);
  console.log(`filled in ${seconds} s: ${Math.round(statSync(file).size / 1024 / 1024)} MiB`);
  // A separate process, so that its memory is only that of the lists.
  spawnSync(process.execPath, [import.meta.filename, folder, file], { stdio: "inherit" });
  rmSync(folder, { recursive: true, force: true });
}
