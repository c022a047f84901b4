import type { ChildProcess } from "node:child_process";

/**
 * The requests that a part handles, by name. Input and answer are plain data, because they cross a process
 * border.
 */
export type BenchHandlers = Record<string, (input: never) => unknown>;

type Question = { id: number; name: string; input: unknown };
type BenchReply = { id: number; answer?: unknown; error?: string };
type PendingReply = { resolve(answer: unknown): void; reject(error: Error): void };

/** The driver's end of a bench process: the load, the sink, or the pass-through. */
export class BenchProcess<A extends BenchHandlers> {
  readonly process: ChildProcess;
  readonly #name: string;
  readonly #waiting = new Map<number, PendingReply>();
  #asked = 0;

  constructor(name: string, child: ChildProcess) {
    this.#name = name;
    this.process = child;
    child.on("message", (reply) => this.#receive(reply as BenchReply));
    child.on("exit", (code, signal) =>
      this.#fail(new Error(`The ${name} ended (${signal ?? code}). Its output is above.`)),
    );
  }

  /**
   * Sends a request to the part. Rejects if the part fails, ends, or does not answer within `timeout`
   * milliseconds.
   */
  async ask<N extends keyof A & string>(
    name: N,
    input: Parameters<A[N]>[0],
    timeout = 10_000,
  ): Promise<Awaited<ReturnType<A[N]>>> {
    const id = ++this.#asked;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#waiting.set(id, { resolve, reject });
    const timer = setTimeout(
      () => reject(new Error(`The ${this.#name} did not answer "${name}" within ${timeout} ms.`)),
      timeout,
    );
    this.process.send({ id, name, input } satisfies Question, (error) => error && reject(error));
    try {
      return (await promise) as Awaited<ReturnType<A[N]>>;
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(id);
    }
  }

  #receive({ id, answer, error }: BenchReply): void {
    const waiting = this.#waiting.get(id);
    if (error === undefined) waiting?.resolve(answer);
    else waiting?.reject(new Error(`The ${this.#name} failed: ${error}`));
  }

  #fail(error: Error): void {
    for (const waiting of this.#waiting.values()) waiting.reject(error);
  }
}

/** Handles the requests of the driver within a part. Ends the process when the driver has ended. */
export function serveDriver(answers: BenchHandlers): void {
  process.on("message", (message) => void sendReply(answers, message as Question));
  // `launch/follow.js`, which parts inherit, lets a process end while its channel is open.
  process.channel?.ref();
  process.on("disconnect", () => process.exit());
  // Ctrl-C reaches the whole process group, but the driver ends its parts itself, in order.
  process.on("SIGINT", () => undefined);
}

async function sendReply(answers: BenchHandlers, { id, name, input }: Question): Promise<void> {
  try {
    const answer = await answers[name]?.(input as never);
    process.send?.({ id, answer } satisfies BenchReply);
  } catch (error) {
    process.send?.({
      id,
      error: error instanceof Error ? (error.stack ?? error.message) : String(error),
    } satisfies BenchReply);
  }
}
