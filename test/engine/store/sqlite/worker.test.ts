import { once } from "node:events";
import { join } from "node:path";
import type { Worker } from "node:worker_threads";
import { expect, onTestFinished, test } from "vitest";
import { openSqlite } from "../../../../src/engine/store/sqlite/database.ts";
import { startCheckpointThread, startReadingThread } from "../../../../src/engine/store/sqlite/worker.ts";
import { createTestFolder } from "../storeFixture.ts";

/** Returns the threads that are started from now on. */
function startedThreads(): Worker[] {
  const started: Worker[] = [];
  const note = (worker: Worker): void => void started.push(worker);
  process.on("worker", note);
  onTestFinished(() => void process.off("worker", note));
  return started;
}

/** Creates an empty store. */
async function madeStore(path = join(createTestFolder(), "store.db")): Promise<string> {
  const database = openSqlite(path);
  await database.createTables();
  database.close();
  return path;
}

test("a thread that ended fails its requests, and the next request starts another one", async () => {
  const started = startedThreads();
  const place = { path: await madeStore(), keys: null };
  const reading = startReadingThread(place);
  const checkpointing = startCheckpointThread(place);
  onTestFinished(() => Promise.all([reading.close(), checkpointing.close()]).then(() => undefined));
  expect([await reading.queries.accounts(), await checkpointing.checkpoint()]).toEqual([
    [],
    { isWhole: true },
  ]);
  const ended = started.map((worker) => once(worker, "exit"));
  for (const worker of started) void worker.terminate();
  await expect(reading.queries.accounts()).rejects.toMatchObject({ code: "unavailable" });
  await Promise.all(ended);
  expect([await reading.queries.accounts(), await checkpointing.checkpoint()]).toEqual([
    [],
    { isWhole: true },
  ]);
  expect(started).toHaveLength(4);
});

test("a thread that could not open the file tries again at the next request", async () => {
  const path = join(createTestFolder(), "store.db");
  const { queries, close } = startReadingThread({ path, keys: null });
  onTestFinished(close);
  await expect(queries.accounts()).rejects.toMatchObject({ code: "unavailable" });
  await madeStore(path);
  expect(await queries.accounts()).toEqual([]);
});

test("a closed thread is not started again", async () => {
  const started = startedThreads();
  const place = { path: await madeStore(), keys: null };
  const used = startReadingThread(place);
  const unused = startReadingThread(place);
  expect(await used.queries.accounts()).toEqual([]);
  await Promise.all([used.close(), unused.close()]);
  await expect(used.queries.accounts()).rejects.toMatchObject({ code: "unavailable" });
  await expect(unused.queries.accounts()).rejects.toMatchObject({ code: "unavailable" });
  expect(started).toHaveLength(1);
});

test("accounts take turns, so a request waits for few of the requests of another account", async () => {
  const { queries, close } = startReadingThread({ path: await madeStore(), keys: null });
  onTestFinished(close);
  const answered: string[] = [];
  const ask = (account: string): Promise<unknown> =>
    queries.listResources("limiters", { account, limit: 1 }).then(() => answered.push(account));
  // The thread starts with the first request, and receives all of them together.
  await Promise.all([...Array.from({ length: 20 }, () => ask("busy")), ask("acme")]);
  expect(answered.indexOf("acme")).toBeLessThanOrEqual(2);
  expect(answered).toHaveLength(21);
});

test("a thread that nothing uses ends, and the next request starts another one", async () => {
  const started = startedThreads();
  const ends: (() => void)[] = [];
  let cancelled = 0;
  const whenUnused = (end: () => void): (() => void) => {
    ends.push(end);
    return () => void cancelled++;
  };
  const place = { path: await madeStore(), keys: null };
  const { checkpoint, close } = startCheckpointThread(place, undefined, whenUnused);
  onTestFinished(close);
  await Promise.all([checkpoint(), checkpoint()]);
  expect([ends.length, cancelled]).toEqual([1, 0]);
  await checkpoint();
  expect([ends.length, cancelled, started.length]).toEqual([2, 1, 1]);
  const ended = started.map((worker) => once(worker, "exit"));
  ends.at(-1)?.();
  // A request that arrives meanwhile has a new thread.
  expect(await checkpoint()).toEqual({ isWhole: true });
  await Promise.all(ended);
  expect(started).toHaveLength(2);
  await close();
  expect(cancelled).toBe(3);
});

test("a thread answers what it was asked before it is closed", async () => {
  const { queries, close } = startReadingThread({ path: await madeStore(), keys: null });
  const answers = ["acme", "busy", "acme"].map((account) => queries.account(account));
  await close();
  expect(await Promise.all(answers)).toEqual([null, null, null]);
});
