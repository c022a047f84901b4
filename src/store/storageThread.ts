import { parentPort, workerData } from "node:worker_threads";
import { Refusal } from "../core/errors.ts";
import { queriesOf } from "./queries.ts";
import { runSqlBatch } from "./sql.ts";
import { nextDueAt, sqlShelf } from "./sqlShelf.ts";
import type { SqliteDatabase } from "./sqlite.ts";
import { openSqlite } from "./sqlite.ts";
import type { Source } from "./store.ts";
import { StorageRefused, Unavailable } from "./store.ts";
import type { ThreadReply, ThreadRequest, ThreadRole } from "./thread.ts";
import { packResult, unpackBatch } from "./wire.ts";

/** Serves SQLite, and the whole of core with it, to the thread that started this one: see `store/thread.ts`. */
export function serveStorage(given: Omit<Source, "node">): void {
  const { role, path, node, keys } = workerData as ThreadRole;
  const port = parentPort;
  if (!port) throw new Error("storage is served from a thread: store/thread.ts starts it");
  const source: Source = { ...given, node };
  let serve: (request: ThreadRequest) => Promise<unknown> = async () => Promise.reject(new Error("the storage could not be opened"));

  const reply = async (id: number, run: () => Promise<unknown>): Promise<void> => {
    const answer = await run().then(
      (value): ThreadReply => ({ id, value }),
      (error: unknown) => failure(id, error),
    );
    port.postMessage(answer);
  };

  const open = async (): Promise<void> => {
    const database = openSqlite(path, { readOnly: role === "reader", keys });
    if (role === "writer") await database.migrate();
    serve = serving(database, source);
  };

  // One after another: a batch must be on the disk before the next begins.
  let turn = reply(0, open);
  port.on("message", (request: ThreadRequest) => {
    turn = turn.then(() => reply(request.id, () => serve(request)));
  });
}

function serving(database: SqliteDatabase, source: Source): (request: ThreadRequest) => Promise<unknown> {
  const queries = queriesOf(sqlShelf(database.connection));
  return async (request) => {
    switch (request.kind) {
      case "batch": {
        const { calls, hands } = unpackBatch(request.parcel);
        return packResult(await runSqlBatch(database, source, calls, hands), calls);
      }
      case "nextDueAt":
        return nextDueAt(database.connection);
      case "read":
        return (queries[request.query] as (...args: readonly unknown[]) => Promise<unknown>)(...request.args);
      case "close":
        return database.close();
    }
  };
}

function failure(id: number, error: unknown): ThreadReply {
  const text = error instanceof Error ? error.message : String(error);
  if (error instanceof StorageRefused) return { id, error: text, refusedCode: "storage" };
  if (error instanceof Unavailable) return { id, error: text, refusedCode: "unavailable" };
  return { id, error: text, ...(error instanceof Refusal ? { refusedCode: error.code } : {}) };
}
