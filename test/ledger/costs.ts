/**
 * Counts what a process does: statements, rows, commits, syncs, conversions, timers, socket writes and
 * bytes of the heap. It must be imported before the sources that it counts, because it replaces functions
 * of Node.
 */
import { Buffer } from "node:buffer";
import crypto from "node:crypto";
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { Socket } from "node:net";
import { DatabaseSync, StatementSync } from "node:sqlite";
import { getHeapStatistics } from "node:v8";
import pg from "pg";

/** The counts since the last reset. `statements` and `rows` count by kind and table: `insert messages`. */
export type Costs = {
  statements: Record<string, number>;
  rows: Record<string, number>;
  commits: number;
  syncs: number;
  /** Pages that SQLite wrote to its log. */
  pages: number;
  /** Calls of `JSON.parse` and `JSON.stringify`. */
  json: number;
  base64: number;
  timers: number;
  /** Calls of the operating system that write to a socket. */
  socketWrites: number;
  /** Bytes of the JavaScript heap. */
  allocated: number;
  /** Bytes that PostgreSQL wrote to its write-ahead log. */
  logBytes: number;
};

type Counted = Omit<Costs, "pages" | "allocated" | "logBytes">;

const nothing = (): Counted => ({
  ...{ statements: {}, rows: {}, commits: 0, syncs: 0, json: 0, base64: 0, timers: 0, socketWrites: 0 },
});

let costs = nothing();
let heapAtReset = 0;
/** Grows with everything that is counted. */
let events = 0;
/** Statements, syncs and short timers that have begun and not ended. */
let pending = 0;

type Counter = { [N in keyof Counted]: Counted[N] extends number ? N : never }[keyof Counted];

function count(what: Counter): void {
  costs[what]++;
  events++;
}

/** Starts to count from 0. */
export function resetCosts(): void {
  globalThis.gc?.();
  costs = nothing();
  heapAtReset = getHeapStatistics().used_heap_size;
}

/** Returns what was counted since the last reset. */
export function readCosts(): Omit<Costs, "pages" | "logBytes"> {
  return { ...costs, allocated: getHeapStatistics().used_heap_size - heapAtReset };
}

/** Resolves when nothing is pending, and nothing was counted for this number of turns of 4 ms. */
export async function untilQuiet(turns: number): Promise<void> {
  for (let quiet = 0; quiet < turns;) {
    const before = events;
    await new Promise((resolve) => realSetTimeout(resolve, 4));
    quiet = events === before && pending === 0 ? quiet + 1 : 0;
  }
}

/* Statements */

function countStatement(sql: string, rows: number): void {
  events++;
  const name = nameStatement(sql);
  if (name === "commit") {
    costs.commits++;
    onCommit();
  }
  // Pragmas belong to the upkeep of the file, not to messages.
  if (name === "pragma") return;
  costs.statements[name] = (costs.statements[name] ?? 0) + 1;
  if (rows > 0) costs.rows[name] = (costs.rows[name] ?? 0) + rows;
}

let onCommit = (): void => undefined;

/** Calls a function after each commit. */
export const watchCommits = (run: () => void): void => void (onCommit = run);

const names = new Map<string, string>();

/** Returns the kind and the table of a statement, such as `insert messages`. */
function nameStatement(sql: string): string {
  const known = names.get(sql);
  if (known !== undefined) return known;
  const text = sql.trim().toLowerCase();
  const kind = /^(?:with\b.*?\b)?(insert|update|delete|select|\w+)/s.exec(text)?.[1] ?? "";
  const table = {
    insert: /\binsert\s+into\s+(\w+)/,
    update: /\bupdate\s+(\w+)/,
    delete: /\bdelete\s+from\s+(\w+)/,
    select: /\bfrom\s+(\w+)/,
  }[kind]?.exec(text)?.[1];
  const name = table === undefined ? kind : `${kind} ${table}`;
  names.set(sql, name);
  return name;
}

const texts = new WeakMap<StatementSync, string>();
const { prepare, exec } = DatabaseSync.prototype;
DatabaseSync.prototype.prepare = function (this: DatabaseSync, sql: string, ...more) {
  const statement = Reflect.apply(prepare, this, [sql, ...more]);
  texts.set(statement, sql);
  return statement;
};
DatabaseSync.prototype.exec = function (this: DatabaseSync, sql: string) {
  countStatement(sql, 0);
  Reflect.apply(exec, this, [sql]);
};
for (const name of ["get", "all", "run"] as const) {
  const original = StatementSync.prototype[name] as (...values: unknown[]) => unknown;
  const counted = function (this: StatementSync, ...values: unknown[]): unknown {
    const result = Reflect.apply(original, this, values);
    const sql = texts.get(this) ?? "";
    countStatement(sql, Array.isArray(result) && name === "all" ? result.length : 1);
    return result;
  };
  Object.assign(StatementSync.prototype, { [name]: counted });
}

type Query = (this: pg.Client, ...given: unknown[]) => unknown;
const { query } = pg.Client.prototype as unknown as { query: Query };
Object.assign(pg.Client.prototype, {
  query(this: pg.Client, ...given: unknown[]): unknown {
    const [first] = given;
    const sql = typeof first === "string" ? first : String((first as { text?: unknown } | null)?.text);
    const result = Reflect.apply(query, this, given);
    if (!(result instanceof Promise)) return result;
    pending++;
    return result
      .then((answer: pg.QueryResult | pg.QueryResult[]) => {
        const rows = [answer].flat().reduce((sum, { rowCount }) => sum + (rowCount ?? 0), 0);
        countStatement(sql, rows);
        return answer;
      })
      .finally(() => pending--);
  },
});

/* Syncs */

const { fdatasync, fdatasyncSync } = fs;
fs.fdatasyncSync = (file) => {
  count("syncs");
  fdatasyncSync(file);
};
fs.fdatasync = Object.assign((file: number, done: fs.NoParamCallback) => {
  count("syncs");
  pending++;
  fdatasync(file, (error) => {
    pending--;
    done(error);
  });
}, fdatasync);

/* Conversions */

const { parse, stringify } = JSON;
JSON.parse = (...given) => {
  count("json");
  return parse(...given);
};
JSON.stringify = ((...given: Parameters<typeof stringify>) => {
  count("json");
  return stringify(...given);
}) as typeof stringify;

const decode = Buffer.prototype.toString;
Buffer.prototype.toString = function (this: Buffer, ...given: [BufferEncoding?, number?, number?]) {
  if (given[0]?.startsWith("base64")) count("base64");
  return Reflect.apply(decode, this, given);
};
const from = Buffer.from as (...given: unknown[]) => Buffer;
Buffer.from = ((...given: unknown[]) => {
  if (typeof given[1] === "string" && given[1].startsWith("base64")) count("base64");
  return from(...given);
}) as typeof Buffer.from;

/* Time and randomness */

const longTimer = 200;
const never = 2 ** 31 - 1;
const realSetTimeout = globalThis.setTimeout;
const realClearTimeout = globalThis.clearTimeout;
const shortTimers = new WeakSet<object>();

/** Timers of 200 ms or more never fire: only requests cause work. */
globalThis.setTimeout = Object.assign(
  (run: (...given: unknown[]) => void, delay = 0, ...given: unknown[]) => {
    count("timers");
    if (delay >= longTimer) return realSetTimeout(run, never, ...given);
    pending++;
    const timer = realSetTimeout(() => {
      endTimer(timer);
      run(...given);
    }, delay);
    shortTimers.add(timer);
    return timer;
  },
  realSetTimeout,
);
globalThis.clearTimeout = (timer) => {
  if (typeof timer === "object" && timer !== null) endTimer(timer);
  realClearTimeout(timer);
};
const endTimer = (timer: object): void => void (shortTimers.delete(timer) && pending--);

let time = Date.UTC(2027, 0, 15, 12);
// Only this clock stands still. A short pause, as for a locked file, ends by the monotonic clock.
Date.now = () => time;

/** Moves the time. */
export const advance = (by: number): void => void (time += by);

let seed = 1;
crypto.randomFillSync = ((array: Uint32Array) => {
  for (let index = 0; index < array.length; index++) array[index] = seed = (seed * 48_271) % 2_147_483_647;
  return array;
}) as typeof crypto.randomFillSync;
syncBuiltinESMExports();

/* Sockets */

const writeName = "_writeGeneric";
type Writing = { [writeName](...given: unknown[]): unknown };
const sockets = Socket.prototype as unknown as Writing;
const writeToSocket = sockets[writeName];
sockets[writeName] = function (this: Writing, ...given) {
  count("socketWrites");
  return Reflect.apply(writeToSocket, this, given);
};
