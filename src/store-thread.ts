import { parentPort, workerData } from "node:worker_threads";
import { idMaker } from "./core/ids.ts";
import { systemClock, systemRandom } from "./engine/clock.ts";
import { queriesOf } from "./store/queries.ts";
import { nextDueAt, runSqlBatch, sqlShelf } from "./store/sql.ts";
import { openSqlite } from "./store/sqlite.ts";
import type { Source } from "./store/store.ts";
import { StorageRefused } from "./store/store.ts";
import type { ThreadReply, ThreadRequest, ThreadRole } from "./store/thread.ts";

/** What a storage thread runs: SQLite, and the whole of core with it. See `store/thread.ts`. */
const { role, path, node } = workerData as ThreadRole;
const port = parentPort;
if (!port) throw new Error("this file is run as a thread, by store/thread.ts");

const database = openSqlite(path, { readOnly: role === "reader" });
const source: Source = { node, now: () => systemClock.now(), random: systemRandom, newId: idMaker(systemRandom) };
const queries = queriesOf(sqlShelf(database.connection));

async function serve(request: ThreadRequest): Promise<unknown> {
  switch (request.kind) {
    case "batch":
      return runSqlBatch(database, source, request.calls, request.hands);
    case "nextDueAt":
      return nextDueAt(database.connection);
    case "read":
      return (queries[request.query] as (...args: readonly unknown[]) => Promise<unknown>)(...request.args);
    case "close":
      return database.close();
  }
}

const answer = (reply: ThreadReply): void => port.postMessage(reply);

async function reply(id: number, run: () => Promise<unknown>): Promise<void> {
  try {
    answer({ id, value: await run() });
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    answer({ id, error: text, ...(error instanceof StorageRefused ? { refusedCode: "storage" } : {}) });
  }
}

// One after another: a batch must be on the disk before the next begins.
let turn = reply(0, async () => (role === "writer" ? database.migrate() : undefined));
port.on("message", (request: ThreadRequest) => {
  turn = turn.then(() => reply(request.id, () => serve(request)));
});
