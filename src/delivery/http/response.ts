import type { HeaderList } from "../../core/model/message.ts";

/** What an answer is told to, piece by piece. */
export type Listener = {
  /**
   * The final answer begins. `fields` reads its header fields, names as they were sent; it may be called only now. `length`: of the
   * body, as far as the answer announces it.
   */
  begins(status: number, fields: () => HeaderList, length: number | null): void;
  /** Some of the body. The bytes are overwritten when this returns. */
  continues(bytes: Buffer): void;
};

/** An answer that cannot be taken. The message is a sentence that says why, and nothing of what was read. */
export class BadAnswer extends Error {}

const invalid = (how: string): BadAnswer => new BadAnswer(`the answer is not valid HTTP: ${how}`);

/** How long the connection may be used after the answer, in seconds. Null: it must be closed. */
export type Reuse = { seconds: number } | null;

/** Of the head of an answer, and of what follows its last chunk, no more than this is read. */
export const mostHeadBytes = 32 * 1024;
/** The size of a chunk, with whatever is said of it. */
const mostChunkLine = 1024;
/** So many bytes are looked at as text at a time: most heads are shorter, and so is most of what stands between chunks. */
const [glance, glimpse] = [2048, 32];
/** Idle connections go soon, before most servers close them: a request that meets a closing connection is a failed attempt. */
const [usualSeconds, mostSeconds] = [4, 30];

/** Smaller pieces of a body are put together before the listener gets them. */
const smallPiece = 1024;
const together = Buffer.allocUnsafeSlow(64 * 1024);
/** From the 10,001st piece on, the pieces of a body must have 16 bytes on average: each costs the time of a few hundred bytes. */
const [fewPieces, leastMean] = [10_000, 16];

type State = "status" | "fields" | "counted" | "to the end" | "size" | "chunk" | "after chunk" | "trailers" | "whole";

/**
 * Reads one answer (RFC 9112) from the bytes of its connection, in whatever pieces they come. Strict: a line ends with CR LF, a field
 * has a name, and what gives two lengths has none, so two readers cannot see two things in the same bytes. All that it keeps is the head.
 */
export class AnswerReader {
  readonly #method: string;
  readonly #listener: Listener;
  #state: State = "status";
  /** A line of which the end has not come yet. */
  #line = "";
  #headBytes = 0;
  #status = 0;
  #fields: string[] = [];
  #isOldVersion = false;
  /** Bytes of the body, or of the chunk, that are still to come. */
  #left = 0;
  #reuse: Reuse = null;
  /** Bytes that are put together, and not passed on yet. */
  #together = 0;
  #pieces = 0;
  #bodyBytes = 0;

  constructor(method: string, listener: Listener) {
    this.#method = method;
    this.#listener = listener;
  }

  get isWhole(): boolean {
    return this.#state === "whole";
  }

  /** Null unless the answer is whole. */
  get reuse(): Reuse {
    return this.isWhole ? this.#reuse : null;
  }

  /**
   * Returns how many of the bytes were read: fewer than there are if they are more than `mostPieces` pieces of a body. Throws a `BadAnswer`;
   * nothing may follow it.
   */
  take(bytes: Buffer, mostPieces = Infinity): number {
    let at = 0;
    const last = this.#pieces + mostPieces;
    while (at < bytes.length && this.#pieces < last && !this.isWhole) {
      if (this.#takesBytes()) at += this.#readBody(bytes, at);
      else at += this.#readBetweenChunks(bytes, at) || this.#readLines(bytes, at);
    }
    this.#passOn();
    if (!this.isWhole || at === bytes.length) return at;
    // Nobody asked for more. Whoever sends it is not to be trusted with another request.
    this.#reuse = null;
    return bytes.length;
  }

  /** Nothing more will come. Answers whether the answer is whole. */
  closed(): boolean {
    if (this.#state === "to the end") this.#state = "whole";
    this.#reuse = null;
    return this.isWhole;
  }

  #takesBytes(): boolean {
    return this.#state === "counted" || this.#state === "chunk" || this.#state === "to the end";
  }

  #isInChunks(): boolean {
    return this.#state === "size" || this.#state === "after chunk";
  }

  #readBody(bytes: Buffer, from: number): number {
    const some = this.#state === "to the end" ? bytes.length - from : Math.min(this.#left, bytes.length - from);
    this.#countPiece(some);
    if (some < smallPiece) this.#putTogether(bytes, from, some);
    else {
      this.#passOn();
      this.#listener.continues(bytes.subarray(from, from + some));
    }
    this.#left -= some;
    if (this.#state === "to the end" || this.#left > 0) return some;
    this.#state = this.#state === "chunk" ? "after chunk" : "whole";
    return some;
  }

  /** A piece is a chunk, or as much of a body as one look at the connection brought. */
  #countPiece(bytes: number): void {
    this.#bodyBytes += bytes;
    if (++this.#pieces > fewPieces && this.#bodyBytes < this.#pieces * leastMean)
      throw new BadAnswer("the answer comes in pieces of a few bytes each");
  }

  #putTogether(bytes: Buffer, from: number, count: number): void {
    if (this.#together + count > together.length) this.#passOn();
    // A call into Node takes longer than a few bytes.
    if (count > 32) bytes.copy(together, this.#together, from, from + count);
    else for (let n = 0; n < count; n++) together[this.#together + n] = bytes[from + n] ?? 0;
    this.#together += count;
  }

  #passOn(): void {
    const count = this.#together;
    this.#together = 0;
    if (count > 0) this.#listener.continues(together.subarray(0, count));
  }

  /** Reads the end of a chunk and the size of the next one in their usual form. Returns how many bytes that were; 0: read them as lines. */
  #readBetweenChunks(bytes: Buffer, from: number): number {
    if (!this.#isInChunks() || this.#line !== "") return 0;
    let at = from;
    if (this.#state === "after chunk") {
      if (bytes[at] !== 13 || bytes[at + 1] !== 10) return 0;
      at += 2;
    }
    const digits = at;
    let size = 0;
    for (let digit = digitOf(bytes[at]); digit >= 0; digit = digitOf(bytes[++at])) size = size * 16 + digit;
    if (at === digits || at - digits > mostDigits || bytes[at] !== 13 || bytes[at + 1] !== 10) return 0;
    this.#beginChunk(size);
    return at + 2 - from;
  }

  /** Reads lines up to where a body begins, or the answer ends. Answers how many bytes that were. */
  #readLines(bytes: Buffer, from: number): number {
    const text = bytes.toString("latin1", from, Math.min(bytes.length, from + (this.#isInChunks() ? glimpse : glance)));
    let at = 0;
    while (at < text.length && !this.#takesBytes() && this.#state !== "whole") {
      const end = text.indexOf("\n", at);
      if (end < 0) {
        this.#line += text.slice(at);
        this.#mustBeShort();
        return text.length;
      }
      const line = this.#line + text.slice(at, end);
      this.#line = "";
      at = end + 1;
      if (!line.endsWith("\r")) throw invalid("a line does not end with CR LF");
      this.#readLine(line.slice(0, -1));
    }
    return at;
  }

  /** What cannot become a line is refused before its end has come, which may be never. */
  #mustBeShort(): void {
    const { length } = this.#line;
    if (this.#state === "status" && !mark.startsWith(this.#line.slice(0, mark.length)))
      throw invalid("it does not begin with a status line");
    if (this.#isInChunks()) {
      if (length > mostChunkLine) throw invalid("a chunk says too much of its size");
    } else if (this.#headBytes + length > mostHeadBytes) throw tooLarge();
  }

  #readLine(line: string): void {
    if (this.#state === "size") return this.#readSize(line);
    if (this.#state === "after chunk") return this.#endChunk(line);
    this.#count(line);
    if (this.#state === "status") return this.#readStatus(line);
    if (this.#state === "trailers") {
      if (line === "") this.#state = "whole";
    } else if (line === "") this.#begin();
    else this.#readField(line);
  }

  #count(line: string): void {
    this.#headBytes += line.length + 2;
    if (this.#headBytes > mostHeadBytes) throw tooLarge();
  }

  #readStatus(line: string): void {
    const [, minor, status] = statusLine.exec(line) ?? [];
    if (status === undefined) throw invalid("it does not begin with a status line");
    this.#status = Number(status);
    this.#isOldVersion = minor === "0";
    this.#fields = [];
    this.#state = "fields";
  }

  #readField(line: string): void {
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(0, colon));
    const value = trimmed(line, colon + 1);
    if (!token.test(name) || notInField.test(value)) throw invalid("a header is malformed");
    this.#fields.push(name, value);
  }

  #begin(): void {
    const status = this.#status;
    if (status === 101) throw new BadAnswer("the answer is 101 Switching Protocols, which the request did not ask for");
    if (status < 200) {
      // What comes before the answer says nothing of it (RFC 9110, 15.2), whether it was asked for or not.
      this.#state = "status";
      return;
    }
    this.#reuse = this.#reuseBy();
    const length = this.#lengthBy(status);
    this.#left = typeof length === "number" ? length : 0;
    this.#headBytes = 0;
    this.#state = length === "chunked" ? "size" : length === null ? "to the end" : length > 0 ? "counted" : "whole";
    if (length === null) this.#reuse = null;
    this.#listener.begins(status, () => pairs(this.#fields), typeof length === "number" ? length : null);
    // They may take ten times their size.
    this.#fields = [];
  }

  /** How long the body is (RFC 9112, 6.3). Null: as long as the connection lasts. */
  #lengthBy(status: number): number | "chunked" | null {
    const coding = this.#valueOf("transfer-encoding");
    const length = this.#valueOf("content-length");
    if (coding !== null && length !== null) throw invalid("it has two lengths");
    if (this.#method === "HEAD" || status === 204 || status === 304) return 0;
    if (coding !== null) {
      if (coding.toLowerCase() !== "chunked" || this.#isOldVersion) throw invalid("its transfer encoding is not known");
      return "chunked";
    }
    if (length === null) return null;
    const [first = "", ...others] = length.split(",").map((text) => text.trim());
    if (others.some((other) => other !== first)) throw invalid("it has two lengths");
    if (!/^\d{1,15}$/.test(first)) throw invalid("its length is not a number");
    return Number(first);
  }

  #reuseBy(): Reuse {
    const options = this.#valueOf("connection")?.toLowerCase() ?? "";
    if (/(?:^|,)[ \t]*close[ \t]*(?:,|$)/.test(options) || (this.#isOldVersion && !options.includes("keep-alive"))) return null;
    const hint = /(?:^|[,; \t])timeout=(\d{1,6})(?!\d)/i.exec(this.#valueOf("keep-alive") ?? "")?.[1];
    const seconds = hint === undefined ? usualSeconds : Math.min(Number(hint) - 1, mostSeconds);
    return seconds > 0 ? { seconds } : null;
  }

  /** All values of this name as one list (RFC 9110, 5.3). */
  #valueOf(lower: string): string | null {
    const fields = this.#fields;
    let found: string | null = null;
    for (let at = 0; at < fields.length; at += 2) {
      const name = fields[at] ?? "";
      if (name.length !== lower.length || name.toLowerCase() !== lower) continue;
      found = found === null ? (fields[at + 1] ?? "") : `${found}, ${fields[at + 1]}`;
    }
    return found;
  }

  #endChunk(line: string): void {
    if (line !== "") throw invalid("a chunk is longer than its size");
    this.#state = "size";
  }

  #readSize(line: string): void {
    const size = /^([0-9a-fA-F]{1,12})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?$/.exec(line)?.[1];
    if (size === undefined || line.length > mostChunkLine) throw invalid("the size of a chunk is malformed");
    this.#beginChunk(Number.parseInt(size, 16));
  }

  #beginChunk(size: number): void {
    this.#left = size;
    this.#state = size === 0 ? "trailers" : "chunk";
  }
}

/** The size of a chunk has no more digits. */
const mostDigits = 12;

const digitValues = new Int8Array(256).fill(-1);
for (const [value, digit] of [..."0123456789abcdef"].entries()) {
  digitValues[digit.charCodeAt(0)] = value;
  digitValues[digit.toUpperCase().charCodeAt(0)] = value;
}

/** Returns what a hexadecimal digit is worth. Below zero: it is none. */
const digitOf = (byte: number | undefined): number => (byte === undefined ? -1 : (digitValues[byte] ?? -1));

const mark = "HTTP/1.";
const statusLine = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?$/;
const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const notInField = /[^\t\x20-\x7e\x80-\xff]/;

const tooLarge = (): BadAnswer => new BadAnswer(`response headers larger than ${mostHeadBytes / 1024} KiB`);

const isBlank = (code: number): boolean => code === 32 || code === 9;

function trimmed(line: string, from: number): string {
  let [start, end] = [from, line.length];
  while (start < end && isBlank(line.charCodeAt(start))) start++;
  while (end > start && isBlank(line.charCodeAt(end - 1))) end--;
  return line.slice(start, end);
}

function pairs(fields: readonly string[]): HeaderList {
  const list: [string, string][] = [];
  for (let at = 0; at + 1 < fields.length; at += 2) list.push([fields[at] ?? "", fields[at + 1] ?? ""]);
  return list;
}
