import type { ChildProcessByStdio } from "node:child_process";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { isSea } from "node:sea";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import type { Millis } from "../../../engine/core/values/basics.ts";
import { largestMessageBytes } from "../../../engine/core/values/limits.ts";
import { minute, second } from "../../../engine/core/values/time.ts";
import { StorageRefused } from "../../../engine/store/layout/storageErrors.ts";
import type { WalIndex } from "../../../engine/store/sqlite/walIndex.ts";
import type { ReplicaRecord } from "./record.ts";
import { formatRecordHeader, recordHeaderBytes } from "./record.ts";
import type { LogPart } from "./walTail.ts";
import { WalTail } from "./walTail.ts";

/**
 * The state of a replica. `lag` is for how long changes have been missing in it, in milliseconds, or 0.
 * `isComplete`: the replica has all data of the store, except for the lag.
 */
export type ReplicaReport = { lag: Millis; isComplete: boolean; writtenBytes: number };

/** An event for the log of the server. */
export type ReplicaEvent = { what: "complete" } | { what: "waiting" | "broken"; reason: string };

type ReplicaOptions = {
  /** The path of the database file. */
  path: string;
  folder: string;
  /** The program that writes: a file, or its code. */
  writerCode: URL | string;
  /** The identity of the store. A folder with the replica of another store is refused. */
  identity: string;
  now(): Millis;
  pause(time: Millis): Promise<void>;
  onEvent(event: ReplicaEvent): void;
};

/**
 * The maximum number of bytes that wait for the writer in memory. If more would wait, it starts again with a
 * copy. One message must not be enough for that.
 */
const maxWaiting = 2 * largestMessageBytes;
/**
 * How long a change waits before it is passed to the writer, so that many changes need one read, one write to
 * the pipe and one copy of each page.
 */
const readPause: Millis = 50;
/** How long a start waits for the writer to accept its folder, and a stop for it to write the rest. */
const replyTimeout: Millis = 3 * second;
const retryPauses = { first: 5 * second, longest: minute } as const;

type Writer = ChildProcessByStdio<Writable, Readable, null>;

/** A report of a writer. It has one of these fields, or `complete` with `bytes`. */
type WriterReport = {
  ready?: true;
  refused?: string;
  problem?: string;
  waiting?: string;
  written?: number;
  copied?: true;
  wantsBase?: true;
  complete?: true;
  bytes?: number;
};

/**
 * Keeps a second copy of a store in another folder, less than a second behind while that folder keeps up. It
 * passes what is added to the write-ahead log to a separate process, so a target that is slow, full or hangs
 * delays nothing: it only raises the lag. See docs/decisions/0084.
 */
export class Replica {
  readonly #options: ReplicaOptions;
  #index: WalIndex | null = null;
  #stream: Stream | null = null;
  #isClosed = false;
  /** Since when the replica lacks the data of the store, apart from what the stream has not written yet. */
  #incompleteSince: Millis | null;
  #retryPause: Millis = retryPauses.first;
  #writtenBytes = 0;
  #refusal: string | null = null;
  #isWaiting = false;
  #onReply: () => void = () => undefined;

  constructor(options: ReplicaOptions) {
    this.#options = options;
    this.#incompleteSince = options.now();
  }

  /**
   * Starts the process that writes. Throws `StorageRefused` if the folder has something else. If the folder
   * does not respond, the server starts nevertheless.
   */
  async start(index: WalIndex): Promise<void> {
    this.#index = index;
    const replied = new Promise<void>((resolve) => (this.#onReply = resolve));
    this.#begin();
    await Promise.race([replied, this.#options.pause(replyTimeout)]);
    if (this.#refusal === null) return;
    this.#isClosed = true;
    throw new StorageRefused(`--replicate: ${this.#refusal}`);
  }

  /** Must be called in each transaction, after it has begun and before it writes. Never throws. */
  beforeWrite(): void {
    this.#useStream((stream) => stream.takeBeforeWrite());
  }

  /**
   * Must be called after each transaction, before its changes are acknowledged. From then on, the lag counts.
   * Never throws, because the transaction is stored already.
   */
  afterWrite(): void {
    this.#useStream((stream) => {
      if (!stream.noteChange()) return;
      void this.#options.pause(readPause).then(() => {
        if (this.#stream === stream) this.#take();
      });
    });
  }

  report(): ReplicaReport {
    const since = this.#incompleteSince ?? this.#stream?.oldestWaiting() ?? null;
    return {
      lag: since === null ? 0 : Math.max(0, this.#options.now() - since),
      isComplete: this.#incompleteSince === null,
      writtenBytes: this.#writtenBytes,
    };
  }

  /** Stops after the last records have been written, or after 3 s. */
  async close(): Promise<void> {
    this.#take();
    this.#isClosed = true;
    const stream = this.#stream;
    this.#stream = null;
    await stream?.end(this.#options.pause(replyTimeout));
  }

  /** Passes all changes to the writer. */
  #take(): void {
    this.#useStream((stream) => stream.take());
  }

  #useStream(use: (stream: Stream) => void): void {
    if (this.#stream === null) return;
    try {
      use(this.#stream);
    } catch (error) {
      this.#break(error instanceof Error ? error.message : String(error));
    }
  }

  #begin(): void {
    const { path, folder, identity, now, writerCode } = this.#options;
    if (this.#index === null) throw new Error("a replica was not started");
    const tail = new WalTail(path, this.#index);
    let writer;
    try {
      writer = startWriter(writerCode, [folder, identity, path]);
    } catch (error) {
      tail.close();
      throw error;
    }
    const stream = new Stream({
      writer,
      tail,
      now,
      onReport: (report) => this.#handle(report, stream),
      onEnd: (reason) => {
        if (this.#stream === stream) this.#break(reason);
      },
    });
    this.#stream = stream;
  }

  #handle(report: WriterReport, stream: Stream): void {
    if (stream !== this.#stream) return;
    const { refused, ready, written, problem, waiting } = report;
    if (refused !== undefined) this.#refusal = refused;
    if (ready || refused !== undefined) this.#onReply();
    if (refused !== undefined || problem !== undefined) return this.#break(refused ?? problem ?? "");
    if (waiting !== undefined && !this.#isWaiting)
      this.#options.onEvent({ what: "waiting", reason: waiting });
    this.#isWaiting = waiting !== undefined || (this.#isWaiting && written === undefined);
    if (written !== undefined) this.#writtenBytes += stream.acknowledge(written);
    if (report.wantsBase || report.copied) this.#take();
    if (stream !== this.#stream) return;
    if (report.wantsBase) stream.sendBase();
    if (report.copied) stream.sendMark();
    if (report.bytes !== undefined) this.#writtenBytes += report.bytes;
    if (report.complete && this.#incompleteSince !== null) {
      this.#incompleteSince = null;
      this.#retryPause = retryPauses.first;
      this.#options.onEvent({ what: "complete" });
    }
    if (ready) {
      // The log has changes already, and they come first.
      this.#take();
      if (stream === this.#stream) stream.sendBase();
    }
  }

  /** Ends a stream. A new one begins later, with a copy of the whole store. */
  #break(reason: string): void {
    const stream = this.#stream;
    if (stream === null) return;
    this.#incompleteSince ??= stream.oldestWaiting() ?? this.#options.now();
    this.#stream = null;
    stream.kill();
    this.#options.onEvent({ what: "broken", reason });
    this.#beginLater();
  }

  #beginLater(): void {
    const pause = this.#retryPause;
    this.#retryPause = Math.min(2 * pause, retryPauses.longest);
    void this.#options.pause(pause).then(() => {
      if (!this.#isClosed && this.#stream === null) this.#tryAgain();
    });
  }

  #tryAgain(): void {
    try {
      this.#begin();
    } catch (error) {
      this.#options.onEvent({ what: "broken", reason: String(error) });
      this.#beginLater();
    }
  }
}

type StreamOptions = {
  writer: Writer;
  tail: WalTail;
  now(): Millis;
  onReport(report: WriterReport): void;
  onEnd(reason: string): void;
};

/** One process that writes, and what it has been sent. */
class Stream {
  readonly #options: StreamOptions;
  readonly #generation = randomBytes(8).toString("hex");
  #isReady = false;
  #offset = 0;
  /** The offset at which the present write-ahead log begins. */
  #logStart = 0;
  #pageBytes = 0;
  /** The end and the time of each record that is not on the disk of the target. */
  readonly #waiting: { end: number; time: Millis }[] = [];
  /** When the first change ended that was not read yet. */
  #unreadSince: Millis | null = null;
  #acknowledged = 0;

  constructor(options: StreamOptions) {
    this.#options = options;
    const { writer, onReport, onEnd } = options;
    let text = "";
    writer.stdout.on("data", (bytes: Buffer) => {
      const lines = `${text}${bytes.toString()}`.split("\n");
      text = lines.pop() ?? "";
      for (const line of lines) {
        const report = JSON.parse(line) as WriterReport;
        this.#isReady ||= report.ready === true;
        onReport(report);
      }
    });
    writer.stdin.on("error", () => undefined);
    writer.on("error", (error) => onEnd(`the process that writes could not be started: ${error.message}`));
    writer.on("exit", (code, signal) =>
      onEnd(`the process that writes has ended (${signal ?? `code ${code}`})`),
    );
  }

  /** Notes that a transaction has ended. Returns whether it is the first change since the last read. */
  noteChange(): boolean {
    if (!this.#isReady) return false;
    const { tail, now } = this.#options;
    tail.afterWrite();
    if (this.#unreadSince !== null || !tail.hasMore()) return false;
    this.#unreadSince = now();
    return true;
  }

  take(): void {
    if (!this.#isReady) return;
    this.#options.tail.read((part) => this.#sendPart(part));
    this.#endRead();
  }

  /** Takes all changes if the present transaction may overwrite them. */
  takeBeforeWrite(): void {
    if (!this.#isReady) return;
    if (this.#options.tail.readBeforeWrite((part) => this.#sendPart(part))) this.#endRead();
  }

  #sendPart({ frames, pageBytes, restarts }: LogPart): void {
    this.#pageBytes = pageBytes;
    if (restarts) this.#logStart = this.#offset;
    this.#send("frames", { offset: this.#offset, payload: frames });
  }

  #endRead(): void {
    this.#unreadSince = null;
    if (this.#options.writer.stdin.writableLength > maxWaiting)
      throw new Error(`the target is too slow: ${maxWaiting / 2 ** 20} MiB of changes are waiting for it`);
  }

  sendBase(): void {
    this.#send("base", { offset: this.#logStart });
  }

  sendMark(): void {
    this.#send("mark", { offset: this.#offset });
  }

  /** Notes that the target has the log up to an offset. Returns how many bytes that are more than before. */
  acknowledge(offset: number): number {
    while (this.#waiting[0] && this.#waiting[0].end <= offset) this.#waiting.shift();
    const more = offset - this.#acknowledged;
    this.#acknowledged = offset;
    return more;
  }

  /** Returns the time before which the target has all changes, or null if it has all. */
  oldestWaiting(): Millis | null {
    return this.#waiting[0]?.time ?? this.#unreadSince;
  }

  async end(timeout: Promise<void>): Promise<void> {
    const { writer } = this.#options;
    const ended = new Promise<void>((resolve) => writer.once("exit", () => resolve()));
    writer.stdin.end();
    if (writer.exitCode === null && writer.signalCode === null) await Promise.race([ended, timeout]);
    this.kill();
  }

  /** Does not wait for the process: if its disk hangs, it cannot end. */
  kill(): void {
    const { writer, tail } = this.#options;
    writer.kill("SIGKILL");
    writer.stdin.destroy();
    writer.stdout.destroy();
    writer.unref();
    tail.close();
  }

  #send(
    kind: ReplicaRecord["kind"],
    { offset, payload = Buffer.alloc(0) }: { offset: number; payload?: Buffer },
  ): void {
    const time = this.#options.now();
    const { stdin } = this.#options.writer;
    const header = formatRecordHeader({
      kind,
      generation: this.#generation,
      offset,
      time,
      pageBytes: this.#pageBytes,
      payload,
    });
    stdin.cork();
    stdin.write(header);
    if (payload.length > 0) stdin.write(payload);
    stdin.uncork();
    if (kind !== "frames") return;
    this.#offset += recordHeaderBytes + payload.length;
    this.#waiting.push({ end: this.#offset, time: this.#unreadSince ?? time });
  }
}

/** Starts the process that writes a replica. It cannot share a thread pool with the server. */
function startWriter(writerCode: URL | string, args: readonly string[]): Writer {
  const program =
    typeof writerCode === "string"
      ? isSea()
        ? ["write-replica"]
        : ["-e", writerCode, "--"]
      : [fileURLToPath(writerCode)];
  const writer = spawn(process.execPath, [...program, ...args], { stdio: ["pipe", "pipe", "ignore"] });
  // Without free descriptors there are no pipes, although the types promise them. The error is an event.
  const hasPipes = (writer.stdin as Writable | undefined) !== undefined;
  if (hasPipes) return writer;
  writer.on("error", () => undefined);
  throw new Error("the process that writes could not be started: this process has no free descriptors");
}
