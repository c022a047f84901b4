import type { MessagePort } from "node:worker_threads";
import { parentPort, workerData } from "node:worker_threads";
import { OwnerTurns } from "../../core/node/ownerTurns.ts";
import { Refusal } from "../../core/values/errors.ts";
import { createQueries } from "../catalog/queries.ts";
import { readOwner } from "./readOwner.ts";
import { createSqlReads } from "../sql/reads.ts";
import type { SqliteDatabase } from "./database.ts";
import { openSqlite } from "./database.ts";
import { StorageRefused, Unavailable } from "../layout/storageErrors.ts";
import { checkPages, listTables } from "./contentCheck.ts";
import type { Damage } from "./fileCheck.ts";
import type { Queries } from "../catalog/queries.ts";
import type { KeySource } from "../layout/keyRing.ts";
import { formatDifference } from "./fileCheck.ts";

// The main file of the threads that `engine/store/sqlite/worker.ts` starts.

/** A request to a storage thread. */
export type ThreadRequest =
  | { id: number; kind: "checkpoint" }
  | { id: number; kind: "check"; after: string | null }
  | { id: number; kind: "read"; query: keyof Queries; args: readonly unknown[] }
  | { id: number; kind: "close" };
/** The reply of a storage thread. */
export type ThreadReply =
  | { id: number; value: unknown }
  | { id: number; error: string; refusedCode?: string };
/** The message of a storage thread that has found damage. */
export type ThreadFind = { damage: Damage };
/**
 * `failed` is set if the disk did not keep what this checkpoint, or an earlier partial checkpoint, has
 * written to the file. The log must then be kept.
 */
export type CheckpointResult = { isWhole: boolean; failed?: string };
/** The work of a storage thread, and its file. */
export type ThreadRole = { role: "reading" | "checkpoint" | "check"; path: string; keys: KeySource };

const { role, path, keys } = workerData as ThreadRole;
const port = parentPort;
if (!port) throw new Error("this file must be run as a thread by engine/store/sqlite/worker.ts");

const onDamage = (damage: Damage): void => port.postMessage({ damage } satisfies ThreadFind);

let handler: ((request: ThreadRequest) => Promise<unknown>) | null = null;
const waiting = new OwnerTurns<ThreadRequest>();
let closing: ThreadRequest | null = null;
let isAtWork = false;
port.on("message", (request: ThreadRequest) => {
  if (request.kind === "close") closing = request;
  else waiting.add(request.kind === "read" ? readOwner(request.args) : "", request);
  if (!isAtWork) void handleWaiting(port);
});

/**
 * Handles the waiting requests one after another. Accounts take turns, so a request waits for at most one
 * request of each other account. The thread is closed when nothing else waits.
 */
async function handleWaiting(replies: Pick<MessagePort, "postMessage">): Promise<void> {
  isAtWork = true;
  for (let request = waiting.take() ?? closing; request !== null; request = waiting.take() ?? closing) {
    if (request === closing) closing = null;
    replies.postMessage(await handleRequest(request));
    // Requests that have arrived meanwhile must be received before the next one is chosen.
    await new Promise((resolve) => setImmediate(resolve));
  }
  isAtWork = false;
}

async function handleRequest(request: ThreadRequest): Promise<ThreadReply> {
  try {
    // If the file cannot be opened, for example because too many files are open, the caller gets the error
    // and the next request tries again.
    handler ??= createHandler(openSqlite(path, { readOnly: role !== "checkpoint", keys, onDamage }));
    return { id: request.id, value: await handler(request) };
  } catch (error) {
    return toFailureReply(request.id, error);
  }
}

function createHandler(database: SqliteDatabase): (request: ThreadRequest) => Promise<unknown> {
  const queries = createQueries(createSqlReads(database.connection));
  return async (request) => {
    switch (request.kind) {
      case "read":
        return (queries[request.query] as (...args: readonly unknown[]) => Promise<unknown>)(...request.args);
      case "checkpoint":
        return runCheckpoint(database);
      case "check":
        return checkTable(database, request.after);
      case "close":
        return database.close();
    }
  };
}

/**
 * Reads all pages of a table and its indexes, and reports what is damaged. Returns the name
 * of the table, or null after the last one.
 */
async function checkTable({ connection }: SqliteDatabase, after: string | null): Promise<string | null> {
  const names = await listTables(connection);
  const table = names[after === null ? 0 : names.indexOf(after) + 1];
  if (table === undefined) return null;
  for (const text of await checkPages(connection, table))
    onDamage({ isFile: true, text: formatDifference(path, text) });
  return table;
}

/**
 * The error code of a failed sync. The operating system does not write again what it failed to write, so a
 * later sync could succeed although data was lost.
 */
const fileNotSynced = 1034;

async function runCheckpoint(database: SqliteDatabase): Promise<CheckpointResult> {
  try {
    await database.connection.query("pragma wal_checkpoint(passive)", []);
  } catch (error) {
    if (!(error instanceof Error) || Reflect.get(error, "errcode") !== fileNotSynced) throw error;
    return { isWhole: false, failed: `${error.message}, during a checkpoint of the write-ahead log` };
  }
  const { written, checkpointed } = database.walLength();
  return { isWhole: written === checkpointed };
}

function toFailureReply(id: number, error: unknown): ThreadReply {
  const text = error instanceof Error ? error.message : String(error);
  if (error instanceof StorageRefused) return { id, error: text, refusedCode: "storage" };
  if (error instanceof Unavailable) return { id, error: text, refusedCode: "unavailable" };
  return { id, error: text, ...(error instanceof Refusal ? { refusedCode: error.code } : {}) };
}
