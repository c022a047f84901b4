import type { CommandName } from "../core/commands.ts";
import type { ErrorCode } from "../core/errors.ts";
import { Refusal, errorCodes } from "../core/errors.ts";
import type { Hands } from "../core/hands.ts";
import { noHands } from "../core/hands.ts";
import type { Bytes, Millis } from "../core/message.ts";
import type { Queries } from "./queries.ts";
import type { BatchResult, Call, Desk, Reply, RunBatch, Store } from "./store.ts";
import { Unavailable } from "./store.ts";

/** At most so many calls, and so many bytes of bodies, in one transaction. */
const maxCalls = 512;
const maxBytes = 16 * 1024 * 1024;
/** So many calls must wait before they are sent ahead of the answer to the last batch. See docs/decisions/0009. */
const aheadCalls = 64;

type Waiting = Call & { bytes: number; hands: number; resolve(answer: never): void; reject(error: Error): void };

export type Parts = {
  runBatch: RunBatch;
  read: Queries;
  nextDueAt(): Promise<Millis | null>;
  /** Hears of what other nodes left due. */
  hearOthers?(listener: (at: Millis) => void): void;
  /** Whether batches wait for each other where they are run, so that a second one may be sent ahead. */
  runsInTurn?: boolean;
  close(): Promise<void>;
};

/**
 * Makes a store of something that can run a batch. Whoever waits while one batch is on its way to the disk shares the
 * next one, so the number of commits settles by itself: one for a lone caller, at once; one for hundreds under load.
 */
export function groupCommit({ runBatch, read, nextDueAt, hearOthers, runsInTurn = false, close }: Parts): Store {
  const waiting: Waiting[] = [];
  const listeners = new Set<(at: Millis) => void>();
  let desk: Desk | null = null;
  /** Batches under way. */
  const running = new Set<Waiting[]>();
  let isPumping = false;
  let emptied: () => void = () => undefined;
  let closed = false;
  let closing: Promise<void> | null = null;
  const tellDue = (at: Millis): void => listeners.forEach((listener) => listener(at));
  hearOthers?.(tellDue);

  const pump = (): void => {
    isPumping = false;
    while (waiting.length > 0 && (running.size === 0 || (runsInTurn && running.size === 1 && waiting.length >= aheadCalls))) {
      const batch = nextBatch(waiting);
      const hands = handsBeside([...running].flat());
      running.add(batch);
      void runOne(batch, hands).then(() => {
        running.delete(batch);
        pump();
        if (running.size === 0) emptied();
      });
    }
  };

  /** Whatever is asked in the same turn of the event loop goes along. */
  const pumpSoon = (): void => {
    if (isPumping) return;
    isPumping = true;
    queueMicrotask(pump);
  };

  /** What a batch under way may take is not offered twice. */
  const handsBeside = (others: readonly Waiting[]): Hands => {
    const hands = desk?.hands() ?? noHands;
    if (others.length === 0) return hands;
    const taken = others.reduce((sum, { hands: most, bytes }) => ({ hands: sum.hands + most, bytes: sum.bytes + bytes }), {
      hands: 0,
      bytes: 0,
    });
    return { ...hands, free: hands.free - taken.hands, bytes: { ...hands.bytes, free: hands.bytes.free - taken.bytes } };
  };

  const runOne = async (batch: Waiting[], hands: Hands): Promise<void> => {
    let result: BatchResult;
    try {
      result = await runBatch(
        batch.map(({ name, input }) => ({ name, input })),
        hands,
      );
    } catch (error) {
      return runApart(batch, error instanceof Error ? error : new Error(String(error)));
    }
    batch.forEach((call, index) => answer(call, result.replies[index]));
    for (const what of result.faults) desk?.fault(what);
    for (const delivery of result.deliveries) desk?.deliver(delivery);
    if (result.dueAt !== null) tellDue(result.dueAt);
  };

  /**
   * What cannot be stored together may be the fault of one: each gets its own transaction, and its own error. Not when
   * it may have been stored all the same: whoever asked must know, and ask again if a second time does no harm.
   */
  const runApart = async (batch: Waiting[], error: Error): Promise<void> => {
    if (error instanceof Unavailable) return rejectAll(batch, unavailable(error, "whether this was stored is not known; ask again later"));
    if (batch.length === 1) return rejectAll(batch, error);
    for (const call of batch) await runOne([call], handsBeside(batch));
  };

  return {
    execute: (name: CommandName, input: unknown) =>
      new Promise((resolve, reject) => {
        if (closed) return reject(new Refusal("stopping", "the server is stopping; ask again"));
        waiting.push({ name, input, ...weightOf(input), resolve, reject });
        pumpSoon();
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
    close: () => {
      closed = true;
      const empty = new Promise<void>((resolve) => {
        emptied = resolve;
        if (running.size === 0 && waiting.length === 0) resolve();
      });
      return (closing ??= empty.then(close));
    },
  };
}

/** What a caller is told while the storage cannot be reached. The cause is for our own eyes. */
function unavailable(cause: Error, advice = "ask again later"): Refusal {
  const refusal = new Refusal("unavailable", `the storage cannot be reached: ${advice}`);
  refusal.cause = cause;
  return refusal;
}

/** The answer to a read, or the refusal that says that there can be none now. */
export function orUnavailable<T>(answer: Promise<T>): Promise<T> {
  return answer.catch((error: unknown) => {
    throw error instanceof Unavailable ? unavailable(error) : error;
  });
}

function rejectAll(batch: readonly Waiting[], error: Error): void {
  for (const { reject } of batch) reject(error);
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

/** Bytes of the bodies a command carries, as far as they count, and the hands it may take at most. */
function weightOf(input: unknown): { bytes: number; hands: number } {
  if (typeof input !== "object" || input === null) return { bytes: 0, hands: 0 };
  if ("letters" in input && Array.isArray(input.letters)) {
    const bytes = input.letters.reduce<number>((sum, letter: { body: Bytes }) => sum + letter.body.byteLength, 0);
    return { bytes, hands: input.letters.length };
  }
  if ("limit" in input && typeof input.limit === "number") return { bytes: 0, hands: input.limit };
  // An outcome: a callback or two, and those that waited for its hand.
  return { bytes: "body" in input && input.body instanceof Uint8Array ? input.body.byteLength : 0, hands: 2 };
}

function answer({ name, resolve, reject }: Waiting, reply: Reply | undefined): void {
  if (!reply) return reject(new Error(`${name}: no reply came back`));
  if ("answer" in reply) return resolve(reply.answer as never);
  if ("failed" in reply) return reject(new Error(`${name} failed: ${reply.failed}`));
  reject(new Refusal(codeOf(reply.refused.code), reply.refused.message));
}

/** The code of a refusal that was on its way as plain data. */
export const codeOf = (code: string): ErrorCode => (code in errorCodes ? (code as ErrorCode) : "invalid");
