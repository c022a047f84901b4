import { Worker } from "node:worker_threads";
import { Refusal } from "../../core/values/errors.ts";
import type { OnDamage } from "./fileCheck.ts";
import { codeOf, orUnavailable } from "../batch/groupCommit.ts";
import type { Queries } from "../queries/index.ts";
import { queriesOf } from "../queries/index.ts";
import type { Shelf } from "../queries/storageReads.ts";
import type { Folded, ThreadFind, ThreadReply, ThreadRequest, ThreadRole } from "./workerMain.ts";
import { StorageRefused, Unavailable } from "../store.ts";

type Place = Omit<ThreadRole, "role">;

/** A thread that answers every query, with a connection of its own, so that a long list holds up nobody else. It starts with the first one. */
export function readingThread(place: Place, onDamage?: OnDamage): { queries: Queries; close(): Promise<void> } {
  const thread = startedWhenAsked({ role: "reading", ...place }, onDamage);
  return { queries: readsThrough((query, args) => orUnavailable(thread.ask({ kind: "read", query, args }))), close: thread.close };
}

/** A thread that folds the write-ahead log back into the file. It starts when there is something to fold. */
export function foldingThread(place: Place, onDamage?: OnDamage): { fold(): Promise<Folded>; close(): Promise<void> } {
  const thread = startedWhenAsked({ role: "folding", ...place }, onDamage);
  return { fold: () => thread.ask({ kind: "fold" }), close: thread.close };
}

type Asked<Request> = Request extends { id: number } ? Omit<Request, "id"> : never;
type Thread = { ask<Answer>(request: Asked<ThreadRequest>): Promise<Answer>; close(): Promise<void> };

/** One that has ended, as when an answer needed more memory than there is, fails those who wait for it, and is replaced for the next one. */
function startedWhenAsked(role: ThreadRole, onDamage: OnDamage = () => undefined): Thread {
  let running: (Thread & { hasEnded(): boolean }) | null = null;
  let isClosed = false;
  return {
    ask: async (request) => {
      if (isClosed) throw new Unavailable("the storage is closed");
      if (running === null || running.hasEnded()) running = thread(role, onDamage);
      return running.ask(request);
    },
    close: async () => {
      isClosed = true;
      await running?.close();
    },
  };
}

/** Every query by its name; the thread knows what it means. */
function readsThrough(ask: (query: keyof Queries, args: readonly unknown[]) => Promise<unknown>): Queries {
  const call = (query: string) => [query, (...args: unknown[]) => ask(query as keyof Queries, args)] as const;
  return Object.fromEntries(Object.keys(queriesOf(unread)).map(call)) as unknown as Queries;
}

/** A storage of which only the names of the queries are asked. */
const unread = {} as Shelf;

function thread(role: ThreadRole, onDamage: OnDamage): Thread & { hasEnded(): boolean } {
  const worker = new Worker(new URL("./workerMain.ts", import.meta.url), { workerData: role, name: `store-${role.role}` });
  const asked = new Map<number, { resolve(value: never): void; reject(error: Error): void }>();
  let lastId = 0;
  let ended: Error | null = null;
  const ask = <Answer>(request: Asked<ThreadRequest>): Promise<Answer> =>
    new Promise((resolve, reject) => {
      if (ended) return reject(ended);
      const id = ++lastId;
      asked.set(id, { resolve, reject });
      worker.postMessage({ ...request, id });
    });
  const failAll = (error: Error): void => {
    ended ??= error;
    for (const { reject } of asked.values()) reject(error);
    asked.clear();
  };
  worker.on("message", (reply: ThreadReply | ThreadFind) => {
    if ("damage" in reply) return onDamage(reply.damage);
    const call = asked.get(reply.id);
    asked.delete(reply.id);
    if ("value" in reply) call?.resolve(reply.value as never);
    else call?.reject(errorOf(reply));
  });
  worker.on("error", (error: Error) => failAll(new Unavailable(`the storage thread ended: ${error.message}`, { cause: error })));
  worker.on("exit", (code) => failAll(new Unavailable(`the storage thread ended with code ${code}`)));
  return {
    ask,
    hasEnded: () => ended !== null,
    close: async () => {
      await ask({ kind: "close" }).catch(() => undefined);
      await worker.terminate();
    },
  };
}

function errorOf({ error, refusedCode }: Extract<ThreadReply, { error: string }>): Error {
  if (refusedCode === undefined) return new Error(error);
  if (refusedCode === "unavailable") return new Unavailable(error);
  return refusedCode === "storage" ? new StorageRefused(error) : new Refusal(codeOf(refusedCode), error);
}
