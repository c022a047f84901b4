import { Worker } from "node:worker_threads";
import { Refusal } from "../../core/values/errors.ts";
import type { OnDamage } from "./fileCheck.ts";
import { toErrorCode, withUnavailableRefusal } from "../batch/groupCommit.ts";
import type { Queries } from "../catalog/queries.ts";
import { createQueries } from "../catalog/queries.ts";
import type { StorageReads } from "../layout/storageReads.ts";
import type { CheckpointResult, ThreadFind, ThreadReply, ThreadRequest, ThreadRole } from "./workerMain.ts";
import { StorageRefused, Unavailable } from "../layout/storageErrors.ts";
import { workerCode } from "./workerCode.ts";

type ThreadLocation = Omit<ThreadRole, "role">;

/**
 * Returns queries that a thread answers on a separate connection, so that a long list delays nothing else.
 * The thread starts with the first query.
 */
export function startReadingThread(
  location: ThreadLocation,
  onDamage?: OnDamage,
): { queries: Queries; close(): Promise<void> } {
  const thread = createLazyThread({ role: "reading", ...location }, onDamage);
  return {
    queries: createRemoteQueries((query, args) =>
      withUnavailableRefusal(thread.send({ kind: "read", query, args })),
    ),
    close: thread.close,
  };
}

/**
 * Calls a function when a thread has been unused for so long that its memory is worth more than its next
 * start. Returns a function that cancels the call.
 */
export type WhenUnused = (end: () => void) => () => void;

/**
 * Returns a function that checkpoints the write-ahead log on a thread. The thread starts with the first
 * checkpoint, and ends when nothing is written.
 */
export function startCheckpointThread(
  location: ThreadLocation,
  onDamage?: OnDamage,
  whenUnused?: WhenUnused,
): { checkpoint(): Promise<CheckpointResult>; close(): Promise<void> } {
  const thread = createLazyThread({ role: "checkpoint", ...location }, onDamage, whenUnused);
  return { checkpoint: () => thread.send({ kind: "checkpoint" }), close: thread.close };
}

/**
 * Returns a function that checks all pages of the table after the given one, on a thread, and returns its
 * name. Null represents no table. The thread starts with the first check, and ends after the last one.
 */
export function startCheckThread(
  location: ThreadLocation,
  onDamage?: OnDamage,
  whenUnused?: WhenUnused,
): { checkTable(after: string | null): Promise<string | null>; close(): Promise<void> } {
  const thread = createLazyThread({ role: "check", ...location }, onDamage, whenUnused);
  return { checkTable: (after) => thread.send({ kind: "check", after }), close: thread.close };
}

type WithoutRequestId<Request> = Request extends { id: number } ? Omit<Request, "id"> : never;
type Thread = {
  send<Answer>(request: WithoutRequestId<ThreadRequest>): Promise<Answer>;
  close(): Promise<void>;
};

/**
 * Returns a thread that starts when it is first needed. If the thread ends, for example because an answer
 * needs too much memory, its pending requests fail and the next request starts a new thread. A request
 * also starts a new thread after an unused one was ended.
 */
function createLazyThread(
  role: ThreadRole,
  onDamage: OnDamage = () => undefined,
  whenUnused: WhenUnused = () => () => undefined,
): Thread {
  let running: (Thread & { hasEnded(): boolean }) | null = null;
  let ending: Promise<void> | null = null;
  let isClosed = false;
  let pending = 0;
  let cancelEnd = (): void => undefined;
  const endUnused = (): void => {
    ending = running?.close() ?? null;
    running = null;
  };
  return {
    send: async (request) => {
      if (isClosed) throw new Unavailable("the storage is closed");
      cancelEnd();
      if (running === null || running.hasEnded()) running = startThread(role, onDamage);
      pending++;
      try {
        return await running.send(request);
      } finally {
        if (--pending === 0 && !isClosed) cancelEnd = whenUnused(endUnused);
      }
    },
    close: async () => {
      isClosed = true;
      cancelEnd();
      await Promise.all([ending, running?.close()]);
    },
  };
}

/** Returns queries that send their name and arguments to the thread. */
function createRemoteQueries(
  send: (query: keyof Queries, args: readonly unknown[]) => Promise<unknown>,
): Queries {
  const call = (query: string) =>
    [query, (...args: unknown[]) => send(query as keyof Queries, args)] as const;
  return Object.fromEntries(Object.keys(createQueries(unread)).map(call)) as unknown as Queries;
}

/** Storage reads that are never called: only the names of the queries are needed. */
const unread = {} as StorageReads;

function startThread(role: ThreadRole, onDamage: OnDamage): Thread & { hasEnded(): boolean } {
  const worker = new Worker(workerCode, {
    eval: typeof workerCode === "string",
    workerData: role,
    name: `store-${role.role}`,
  });
  const pending = new Map<number, { resolve(value: never): void; reject(error: Error): void }>();
  let lastId = 0;
  let endError: Error | null = null;
  const send = <Answer>(request: WithoutRequestId<ThreadRequest>): Promise<Answer> =>
    new Promise((resolve, reject) => {
      if (endError) return reject(endError);
      const id = ++lastId;
      pending.set(id, { resolve, reject });
      worker.postMessage({ ...request, id });
    });
  const failAll = (error: Error): void => {
    endError ??= error;
    for (const { reject } of pending.values()) reject(error);
    pending.clear();
  };
  worker.on("message", (reply: ThreadReply | ThreadFind) => {
    if ("damage" in reply) return onDamage(reply.damage);
    const call = pending.get(reply.id);
    pending.delete(reply.id);
    if ("value" in reply) call?.resolve(reply.value as never);
    else call?.reject(toError(reply));
  });
  worker.on("error", (error: Error) =>
    failAll(new Unavailable(`the storage thread ended: ${error.message}`, { cause: error })),
  );
  worker.on("exit", (code) => failAll(new Unavailable(`the storage thread ended with code ${code}`)));
  return {
    send,
    hasEnded: () => endError !== null,
    close: async () => {
      await send({ kind: "close" }).catch(() => undefined);
      await worker.terminate();
    },
  };
}

function toError({ error, refusedCode }: Extract<ThreadReply, { error: string }>): Error {
  if (refusedCode === undefined) return new Error(error);
  if (refusedCode === "unavailable") return new Unavailable(error);
  return refusedCode === "storage" ? new StorageRefused(error) : new Refusal(toErrorCode(refusedCode), error);
}
