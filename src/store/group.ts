import type { CommandName } from "../core/commands.ts";
import type { ErrorCode } from "../core/errors.ts";
import { Refusal, errorCodes } from "../core/errors.ts";
import { noHands } from "../core/hands.ts";
import type { Millis } from "../core/message.ts";
import type { Queries } from "./queries.ts";
import type { Call, Desk, Reply, RunBatch, Store } from "./store.ts";

/** At most so many calls, and so many bytes of bodies, in one transaction. */
const maxCalls = 512;
const maxBytes = 16 * 1024 * 1024;

type Waiting = Call & { bytes: number; resolve(answer: never): void; reject(error: Error): void };

export type Parts = {
  runBatch: RunBatch;
  read: Queries;
  nextDueAt(): Promise<Millis | null>;
  /** Hears of what other nodes left due. */
  hearOthers?(listener: (at: Millis) => void): void;
  close(): Promise<void>;
};

/**
 * Makes a store of something that can run a batch. Whoever waits while one batch is on its way to the disk shares the
 * next one, so the number of commits settles by itself: one for a lone caller, at once; one for hundreds under load.
 */
export function groupCommit({ runBatch, read, nextDueAt, hearOthers, close }: Parts): Store {
  const waiting: Waiting[] = [];
  const listeners = new Set<(at: Millis) => void>();
  let desk: Desk | null = null;
  let running: Promise<void> | null = null;
  let closed = false;
  const tellDue = (at: Millis): void => listeners.forEach((listener) => listener(at));
  hearOthers?.(tellDue);

  const runAll = async (): Promise<void> => {
    // Whatever is asked in the same turn of the event loop goes along.
    await Promise.resolve();
    while (waiting.length > 0) await runOne(nextBatch(waiting));
    running = null;
  };

  const runOne = async (batch: Waiting[]): Promise<void> => {
    try {
      const { replies, deliveries, dueAt } = await runBatch(batch.map(({ name, input }) => ({ name, input })), desk?.hands() ?? noHands);
      batch.forEach((call, index) => answer(call, replies[index]));
      for (const delivery of deliveries) desk?.deliver(delivery);
      if (dueAt !== null) tellDue(dueAt);
    } catch (error) {
      await runApart(batch, error instanceof Error ? error : new Error(String(error)));
    }
  };

  /** What cannot be stored together may be the fault of one: each gets its own transaction, and its own error. */
  const runApart = async (batch: Waiting[], error: Error): Promise<void> => {
    const [only] = batch;
    if (batch.length === 1 && only) return only.reject(error);
    for (const call of batch) await runOne([call]);
  };

  return {
    execute: (name: CommandName, input: unknown) =>
      new Promise((resolve, reject) => {
        if (closed) return reject(new Refusal("stopping", "the server is stopping; ask again"));
        waiting.push({ name, input, bytes: weightOf(input), resolve, reject });
        running ??= runAll();
      }),
    read,
    nextDueAt,
    onDue: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    attach: (newDesk) => {
      desk = newDesk;
    },
    close: async () => {
      closed = true;
      await running;
      await close();
    },
  };
}

function nextBatch(waiting: Waiting[]): Waiting[] {
  let bytes = 0;
  let count = 0;
  for (const call of waiting) {
    bytes += call.bytes;
    if (count > 0 && (count === maxCalls || bytes > maxBytes)) break;
    count++;
  }
  return waiting.splice(0, count);
}

/** Bytes of the bodies a command carries, as far as they count. */
function weightOf(input: unknown): number {
  if (typeof input !== "object" || input === null) return 0;
  if ("letters" in input && Array.isArray(input.letters)) return input.letters.reduce((sum: number, { body }) => sum + body.byteLength, 0);
  return "body" in input && input.body instanceof Uint8Array ? input.body.byteLength : 0;
}

function answer({ name, resolve, reject }: Waiting, reply: Reply | undefined): void {
  if (!reply) return reject(new Error(`${name}: no reply came back`));
  if ("answer" in reply) return resolve(reply.answer as never);
  if ("failed" in reply) return reject(new Error(`${name} failed: ${reply.failed}`));
  reject(new Refusal(codeOf(reply.refused.code), reply.refused.message));
}

const codeOf = (code: string): ErrorCode => (code in errorCodes ? (code as ErrorCode) : "invalid");
