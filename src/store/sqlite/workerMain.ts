import { parentPort, workerData } from "node:worker_threads";
import { Refusal } from "../../core/values/errors.ts";
import { createQueries } from "../queries/index.ts";
import { createSqlReads } from "../sql/reads.ts";
import type { SqliteDatabase } from "./database.ts";
import { openSqlite } from "./database.ts";
import { StorageRefused, Unavailable } from "../store.ts";
import type { Damage } from "./fileCheck.ts";
import type { KeySource } from "../sql/keyRing.ts";
import type { Queries } from "../queries/index.ts";

// The file that the threads of `store/sqlite/worker.ts` run.

/** What a storage thread is asked, and what it answers. */
export type ThreadRequest =
  | { id: number; kind: "fold" }
  | { id: number; kind: "read"; query: keyof Queries; args: readonly unknown[] }
  | { id: number; kind: "close" };
export type ThreadReply = { id: number; value: unknown } | { id: number; error: string; refusedCode?: string };
/** Something was found damaged. */
export type ThreadFind = { damage: Damage };
/** `failed`: the disk did not keep what was written to the file, now or when less was folded; so the log must not be given up. */
export type CheckpointResult = { isWhole: boolean; failed?: string };
export type ThreadRole = { role: "reading" | "folding"; path: string; keys: KeySource };

const { role, path, keys } = workerData as ThreadRole;
const port = parentPort;
if (!port) throw new Error("this file is run as a thread: store/sqlite/worker.ts starts it");

const onDamage = (damage: Damage): void => port.postMessage({ damage } satisfies ThreadFind);

let handler: ((request: ThreadRequest) => Promise<unknown>) | null = null;
let lastRequest: Promise<void> = Promise.resolve();
port.on("message", (request: ThreadRequest) => {
  lastRequest = lastRequest.then(async () => port.postMessage(await handleRequest(request)));
});

async function handleRequest(request: ThreadRequest): Promise<ThreadReply> {
  try {
    // What keeps it from being opened, as too many open files, is told to whoever asks, and may be over when the next one does.
    handler ??= createHandler(openSqlite(path, { readOnly: role === "reading", keys, onDamage }));
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
      case "fold":
        return runCheckpoint(database);
      case "close":
        return database.close();
    }
  };
}

/** The system does not write again what it failed to write, so that the next try would succeed and mean nothing. */
const fileNotSynced = 1034;

async function runCheckpoint(database: SqliteDatabase): Promise<CheckpointResult> {
  try {
    await database.connection.query("pragma wal_checkpoint(passive)", []);
  } catch (error) {
    if (!(error instanceof Error) || Reflect.get(error, "errcode") !== fileNotSynced) throw error;
    return { isWhole: false, failed: `${error.message}, when the log was folded into the file` };
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
