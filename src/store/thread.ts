import { Worker } from "node:worker_threads";
import { Refusal } from "../core/errors.ts";
import type { NodeId } from "../core/message.ts";
import { codeOf, groupCommit, orUnavailable } from "./group.ts";
import type { KeySource } from "./keyRing.ts";
import type { Queries } from "./queries.ts";
import type { Store } from "./store.ts";
import { StorageRefused, Unavailable } from "./store.ts";
import type { Parcel } from "./wire.ts";
import { packBatch, unpackResult } from "./wire.ts";

/** What a storage thread is asked, and what it answers. One message each way carries a whole batch. */
export type ThreadRequest =
  | { id: number; kind: "batch"; parcel: Parcel }
  | { id: number; kind: "nextDueAt" }
  | { id: number; kind: "read"; query: keyof Queries; args: readonly unknown[] }
  | { id: number; kind: "close" };
export type ThreadReply = { id: number; value: unknown } | { id: number; error: string; refusedCode?: string };
export type ThreadRole = { role: "writer" | "reader"; path: string; node: NodeId; keys: KeySource };

/** `entry`: the file that a thread runs. `linger`: see `Parts` in `store/group.ts`. */
type ThreadOptions = { path: string; node: NodeId; entry: URL; keys?: KeySource; linger?: () => Promise<void> };

/**
 * SQLite on threads of its own: one that writes, so that a commit, which waits for the disk, never stops HTTP, and one
 * that reads, so that a long list never holds up a commit.
 */
export async function threadStore({ path, node, entry, keys = null, linger }: ThreadOptions): Promise<Store> {
  const writer = thread(entry, { role: "writer", path, node, keys });
  await writer.ready;
  let reader: Thread | null = null;
  const readerOnce = (): Thread => (reader ??= thread(entry, { role: "reader", path, node, keys }));
  return groupCommit({
    runsInTurn: true,
    ...(linger && { linger }),
    runBatch: async (calls, hands) => unpackResult(await writer.ask<Parcel>({ kind: "batch", parcel: packBatch(calls, hands) }), calls),
    read: readsThrough((query, args) => orUnavailable(readerOnce().ask({ kind: "read", query, args }))),
    nextDueAt: () => orUnavailable(writer.ask({ kind: "nextDueAt" })),
    close: async () => {
      await reader?.close();
      await writer.close();
    },
  });
}

/** Every query by its name; the thread knows what it means. */
function readsThrough(ask: (query: keyof Queries, args: readonly unknown[]) => Promise<unknown>): Queries {
  const call =
    (query: keyof Queries) =>
    (...args: unknown[]): Promise<never> =>
      ask(query, args) as Promise<never>;
  return {
    ...{ account: call("account"), accountByToken: call("accountByToken"), accounts: call("accounts"), message: call("message") },
    ...{ standing: call("standing"), unfinished: call("unfinished"), deadLetter: call("deadLetter"), deadLetters: call("deadLetters") },
    ...{
      log: call("log"),
      runLog: call("runLog"),
      nextExpiryAt: call("nextExpiryAt"),
      usage: call("usage"),
      setUp: call("setUp"),
      allSetUp: call("allSetUp"),
    },
    ...{ audit: call("audit"), isAnythingLeft: call("isAnythingLeft") },
    sourceBySecret: call("sourceBySecret"),
    ...{ countSetUp: call("countSetUp"), tooMany: call("tooMany"), sealing: call("sealing"), tokenByHash: call("tokenByHash") },
    steps: call("steps"),
    ...{ run: call("run"), activeRun: call("activeRun"), runs: call("runs"), history: call("history"), waitersOf: call("waitersOf") },
    ...{ notificationsOf: call("notificationsOf"), messagesOfRun: call("messagesOfRun"), waitersOfEvent: call("waitersOfEvent") },
    ...{ messagesOfQueue: call("messagesOfQueue"), slotsOf: call("slotsOf"), underWay: call("underWay") },
  };
}

type Asked<Request> = Request extends { id: number } ? Omit<Request, "id"> : never;
type Thread = { ready: Promise<void>; ask<Answer>(request: Asked<ThreadRequest>): Promise<Answer>; close(): Promise<void> };

function thread(entry: URL, role: ThreadRole): Thread {
  const worker = new Worker(entry, { workerData: role, name: `store-${role.role}` });
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
  const ready = new Promise<void>((resolve, reject) => asked.set(0, { resolve, reject }));
  worker.on("message", (reply: ThreadReply) => {
    const call = asked.get(reply.id);
    asked.delete(reply.id);
    if ("value" in reply) call?.resolve(reply.value as never);
    else call?.reject(errorOf(reply));
  });
  worker.on("error", (error: Error) => failAll(new Unavailable(`the storage thread ended: ${error.message}`, { cause: error })));
  worker.on("exit", (code) => failAll(new Unavailable(`the storage thread ended with code ${code}`)));
  return {
    ready,
    ask,
    close: async () => {
      await ready.catch(() => undefined);
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
