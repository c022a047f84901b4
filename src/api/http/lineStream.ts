import { Readable } from "node:stream";
import type { Millis } from "../../engine/core/values/basics.ts";

/** A line of a stream, and the time of what it shows. */
export type TimedLine = { time: Millis; text: string };

/** Lines that were left out. `count` is null if it is not known how many. */
type Gap = { count: number | null; from: Millis; to: Millis };

/**
 * A response body without an end, which consists of lines of JSON. Lines that the client has not read wait in
 * a buffer. When the buffer is full, further lines are left out until the client has read the buffer. A line
 * with `dropped` then says how many were left out. The event `last` says that the last line is on its way.
 */
export class LineStream extends Readable {
  readonly #maxBytes: number;
  #waiting: string[] = [];
  #waitingBytes = 0;
  #gap: Gap | null = null;
  #last: string | null = null;
  #isWanted = false;

  constructor(maxBytes: number) {
    super();
    this.#maxBytes = maxBytes;
  }

  /** Adds a line. Leaves it out if the buffer is full. */
  offer({ time, text }: TimedLine): void {
    if (this.#isEnding) return;
    const bytes = Buffer.byteLength(text) + 1;
    if (this.#gap === null && this.#waitingBytes + bytes <= this.#maxBytes) this.#add(text, bytes);
    else this.#widenGap({ count: 1, from: time, to: time });
    this.#flush();
  }

  /** Leaves out all lines of a span of time. Their number is not known. */
  skip(from: Millis, to: Millis): void {
    if (this.#isEnding) return;
    this.#widenGap({ count: null, from, to });
    this.#flush();
  }

  /** Adds a line that only shows that the stream is alive. Leaves it out if other lines wait. */
  beat(text: string): void {
    if (this.#isEnding || this.#waiting.length > 0 || this.#gap) return;
    this.#add(text, Buffer.byteLength(text) + 1);
    this.#flush();
  }

  /** Ends the stream with a line. Lines that still wait are not sent. */
  finish(last: string): void {
    if (this.#isEnding) return;
    this.#waiting = [];
    this.#gap = null;
    this.#last = `${last}\n`;
    this.emit("last");
    this.#flush();
  }

  get #isEnding(): boolean {
    return this.#last !== null || this.readableEnded || this.destroyed;
  }

  override _read(): void {
    this.#isWanted = true;
    this.#flush();
  }

  #add(text: string, bytes: number): void {
    this.#waiting.push(`${text}\n`);
    this.#waitingBytes += bytes;
  }

  #widenGap({ count, from, to }: Gap): void {
    const gap = this.#gap ?? { count: 0, from, to };
    this.#gap = {
      count: gap.count === null || count === null ? null : gap.count + count,
      from: Math.min(gap.from, from),
      to: Math.max(gap.to, to),
    };
  }

  /** Passes on all that waits, for as long as the reader takes it. */
  #flush(): void {
    while (this.#isWanted && !this.destroyed) {
      const next = this.#take();
      if (next === null) return;
      this.#isWanted = this.push(next);
      if (next === this.#last) {
        this.push(null);
        return;
      }
    }
  }

  #take(): string | null {
    if (this.#waiting.length > 0) {
      // All lines are one piece, so that few writes carry many lines.
      const text = this.#waiting.join("");
      this.#waiting = [];
      this.#waitingBytes = 0;
      return text;
    }
    if (this.#gap === null) return this.#last;
    const { count, from, to } = this.#gap;
    this.#gap = null;
    return `${JSON.stringify({ dropped: count, fromDate: from, toDate: to })}\n`;
  }
}
