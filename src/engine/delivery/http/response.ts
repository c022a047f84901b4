import type { HeaderList } from "../../core/values/basics.ts";

/** Receives a response piece by piece. */
export type ResponseListener = {
  /**
   * Called when the final response begins. `fields` reads its header fields, with names as they were sent; it
   * may be called only during this call. `length` is the announced length of the body, or null.
   */
  onResponse(status: number, fields: () => HeaderList, length: number | null): void;
  /** Called with a part of the body. The bytes are overwritten after it returns. */
  onBody(bytes: Buffer): void;
};

/**
 * Thrown for a response that is not accepted. The text gives the reason, and contains nothing of what was
 * received.
 */
export class BadResponse extends Error {}

const makeInvalidResponse = (problem: string): BadResponse =>
  new BadResponse(`the response is not valid HTTP: ${problem}`);

/** The time for which the connection may be idle and then be reused, in seconds. Null: it must be closed. */
export type ConnectionReuse = { seconds: number } | null;

/** The maximum number of bytes of the head of a response, and of what follows its last chunk. */
export const maxHeadBytes = 32 * 1024;
/** The maximum number of characters of a line with a chunk size, including extensions. */
const maxChunkLine = 1024;
/**
 * How many bytes are decoded as text at a time. Most heads are shorter, and so is most text between chunks.
 */
const headReadBytes = 2048;
const chunkLineReadBytes = 32;
/**
 * How long a connection may be idle if the response gives no hint, and the maximum. Idle connections are
 * closed earlier than most servers close them, because an attempt fails if its request meets a closing
 * connection.
 */
const defaultIdleSeconds = 4;
const maxIdleSeconds = 30;

/** Smaller pieces of a body are joined before the listener receives them. */
const smallPieceBytes = 1024;
const pieceBuffer = Buffer.allocUnsafeSlow(64 * 1024);
/**
 * Up to this number, the pieces of a body may have any size. If there are more, they must have at least 16
 * bytes on average, because each piece costs as much time as a few hundred bytes.
 */
const uncheckedPieces = 10_000;
const minMeanPieceBytes = 16;

type ReaderState =
  | "status"
  | "fields"
  | "counted"
  | "to the end"
  | "size"
  | "chunk"
  | "after chunk"
  | "trailers"
  | "whole";

/**
 * Reads one response (RFC 9112) from the bytes of its connection, which may come in pieces of any size. It is
 * strict, so that two readers cannot disagree about the same bytes. A line ends with CR LF, a field has a
 * name, and two different lengths are an error. It keeps only the head.
 */
export class ResponseReader {
  readonly #method: string;
  readonly #listener: ResponseListener;
  #state: ReaderState = "status";
  /** The beginning of a line whose end has not arrived. */
  #line = "";
  #headBytes = 0;
  #status = 0;
  #fields: string[] = [];
  #isOldVersion = false;
  /** Bytes of the body or the chunk that have not arrived. */
  #left = 0;
  #reuse: ConnectionReuse = null;
  /** Bytes that are joined and not passed on yet. */
  #bufferedBytes = 0;
  #pieces = 0;
  #bodyBytes = 0;

  constructor(method: string, listener: ResponseListener) {
    this.#method = method;
    this.#listener = listener;
  }

  get isWhole(): boolean {
    return this.#state === "whole";
  }

  /** Null unless the response is complete. */
  get reuse(): ConnectionReuse {
    return this.isWhole ? this.#reuse : null;
  }

  /**
   * Reads a response from these bytes. Returns how many were read: fewer than given if they contain more than
   * `maxPieces` pieces of a body. After a `BadResponse` it must not be called again.
   */
  take(bytes: Buffer, maxPieces = Infinity): number {
    let at = 0;
    const lastPiece = this.#pieces + maxPieces;
    while (at < bytes.length && this.#pieces < lastPiece && !this.isWhole) {
      if (this.#isInBody()) at += this.#readBody(bytes, at);
      else at += this.#readBetweenChunks(bytes, at) || this.#readLines(bytes, at);
    }
    this.#flush();
    if (!this.isWhole || at === bytes.length) return at;
    // Bytes follow the response, so this destination is not trusted with another request on the connection.
    this.#reuse = null;
    return bytes.length;
  }

  /** Ends reading, because the connection has ended. Returns whether the response is complete. */
  handleClose(): boolean {
    if (this.#state === "to the end") this.#state = "whole";
    this.#reuse = null;
    return this.isWhole;
  }

  #isInBody(): boolean {
    return this.#state === "counted" || this.#state === "chunk" || this.#state === "to the end";
  }

  #isInChunks(): boolean {
    return this.#state === "size" || this.#state === "after chunk";
  }

  #readBody(bytes: Buffer, from: number): number {
    const count =
      this.#state === "to the end" ? bytes.length - from : Math.min(this.#left, bytes.length - from);
    this.#countPiece(count);
    if (count < smallPieceBytes) this.#bufferPiece(bytes, from, count);
    else {
      this.#flush();
      this.#listener.onBody(bytes.subarray(from, from + count));
    }
    this.#left -= count;
    if (this.#state === "to the end" || this.#left > 0) return count;
    this.#state = this.#state === "chunk" ? "after chunk" : "whole";
    return count;
  }

  /**
   * Counts a piece: a chunk, or the part of a body that arrived in one read. Throws if the pieces are too
   * small.
   */
  #countPiece(bytes: number): void {
    this.#bodyBytes += bytes;
    if (++this.#pieces > uncheckedPieces && this.#bodyBytes < this.#pieces * minMeanPieceBytes)
      throw new BadResponse("the response comes in pieces of a few bytes each");
  }

  #bufferPiece(bytes: Buffer, from: number, count: number): void {
    if (this.#bufferedBytes + count > pieceBuffer.length) this.#flush();
    // For a few bytes a loop is faster than a call into Node.
    if (count > 32) bytes.copy(pieceBuffer, this.#bufferedBytes, from, from + count);
    else for (let n = 0; n < count; n++) pieceBuffer[this.#bufferedBytes + n] = bytes[from + n] ?? 0;
    this.#bufferedBytes += count;
  }

  #flush(): void {
    const count = this.#bufferedBytes;
    this.#bufferedBytes = 0;
    if (count > 0) this.#listener.onBody(pieceBuffer.subarray(0, count));
  }

  /**
   * Reads the end of a chunk and the size of the next one in their usual form. Returns the number of bytes
   * read, or 0 if they must be read as lines.
   */
  #readBetweenChunks(bytes: Buffer, from: number): number {
    if (!this.#isInChunks() || this.#line !== "") return 0;
    let at = from;
    if (this.#state === "after chunk") {
      if (bytes[at] !== 13 || bytes[at + 1] !== 10) return 0;
      at += 2;
    }
    const digits = at;
    let size = 0;
    for (let digit = parseHexDigit(bytes[at]); digit >= 0; digit = parseHexDigit(bytes[++at]))
      size = size * 16 + digit;
    if (at === digits || at - digits > maxSizeDigits || bytes[at] !== 13 || bytes[at + 1] !== 10) return 0;
    this.#beginChunk(size);
    return at + 2 - from;
  }

  /** Reads lines until a body begins or the response ends. Returns the number of bytes read. */
  #readLines(bytes: Buffer, from: number): number {
    const text = bytes.toString(
      "latin1",
      from,
      Math.min(bytes.length, from + (this.#isInChunks() ? chunkLineReadBytes : headReadBytes)),
    );
    let at = 0;
    while (at < text.length && !this.#isInBody() && this.#state !== "whole") {
      const end = text.indexOf("\n", at);
      if (end < 0) {
        this.#line += text.slice(at);
        this.#assertShortLine();
        return text.length;
      }
      const line = this.#line + text.slice(at, end);
      this.#line = "";
      at = end + 1;
      if (!line.endsWith("\r")) throw makeInvalidResponse("a line does not end with CR LF");
      this.#readLine(line.slice(0, -1));
    }
    return at;
  }

  /** Refuses a string that cannot become a valid line, without waiting for its end, which may never come. */
  #assertShortLine(): void {
    const { length } = this.#line;
    if (this.#state === "status" && !versionPrefix.startsWith(this.#line.slice(0, versionPrefix.length)))
      throw makeInvalidResponse("it does not begin with a status line");
    if (this.#isInChunks()) {
      if (length > maxChunkLine) throw makeInvalidResponse("the line with a chunk size is too long");
    } else if (this.#headBytes + length > maxHeadBytes) throw makeHeadTooLarge();
  }

  #readLine(line: string): void {
    if (this.#state === "size") return this.#readSize(line);
    if (this.#state === "after chunk") return this.#endChunk(line);
    this.#countHeadBytes(line);
    if (this.#state === "status") return this.#readStatus(line);
    if (this.#state === "trailers") {
      if (line === "") this.#state = "whole";
    } else if (line === "") this.#beginResponse();
    else this.#parseField(line);
  }

  #countHeadBytes(line: string): void {
    this.#headBytes += line.length + 2;
    if (this.#headBytes > maxHeadBytes) throw makeHeadTooLarge();
  }

  #readStatus(line: string): void {
    const [, minorVersion, status] = statusLine.exec(line) ?? [];
    if (status === undefined) throw makeInvalidResponse("it does not begin with a status line");
    this.#status = Number(status);
    this.#isOldVersion = minorVersion === "0";
    this.#fields = [];
    this.#state = "fields";
  }

  #parseField(line: string): void {
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(0, colon));
    const value = trimValue(line, colon + 1);
    if (!tokenPattern.test(name) || invalidFieldPattern.test(value))
      throw makeInvalidResponse("a header is malformed");
    this.#fields.push(name, value);
  }

  #beginResponse(): void {
    const status = this.#status;
    if (status === 101)
      throw new BadResponse("the response is 101 Switching Protocols, which the request did not ask for");
    if (status < 200) {
      // An interim response says nothing about the final one (RFC 9110, 15.2).
      this.#state = "status";
      return;
    }
    this.#reuse = this.#readReuse();
    const length = this.#readLength(status);
    this.#left = typeof length === "number" ? length : 0;
    this.#headBytes = 0;
    this.#state =
      length === "chunked" ? "size" : length === null ? "to the end" : length > 0 ? "counted" : "whole";
    if (length === null) this.#reuse = null;
    this.#listener.onResponse(
      status,
      () => toHeaderList(this.#fields),
      typeof length === "number" ? length : null,
    );
    // The fields are released, because they may occupy ten times their size in memory.
    this.#fields = [];
  }

  /**
   * Returns the length of the body (RFC 9112, 6.3). Returns null if the body lasts until the connection ends.
   */
  #readLength(status: number): number | "chunked" | null {
    const coding = this.#readField("transfer-encoding");
    const length = this.#readField("content-length");
    if (coding !== null && length !== null) throw makeInvalidResponse("it has two lengths");
    if (this.#method === "HEAD" || status === 204 || status === 304) return 0;
    if (coding !== null) {
      if (coding.toLowerCase() !== "chunked" || this.#isOldVersion)
        throw makeInvalidResponse("its transfer encoding is not known");
      return "chunked";
    }
    if (length === null) return null;
    if (plainLength.test(length)) return Number(length);
    const [first = "", ...others] = length.split(",").map((text) => text.trim());
    if (others.some((other) => other !== first)) throw makeInvalidResponse("it has two lengths");
    if (!plainLength.test(first)) throw makeInvalidResponse("its length is not a number");
    return Number(first);
  }

  #readReuse(): ConnectionReuse {
    const options = this.#readField("connection")?.toLowerCase() ?? "";
    if (
      /(?:^|,)[ \t]*close[ \t]*(?:,|$)/.test(options) ||
      (this.#isOldVersion && !options.includes("keep-alive"))
    )
      return null;
    const hint = /(?:^|[,; \t])timeout=(\d{1,6})(?!\d)/i.exec(this.#readField("keep-alive") ?? "")?.[1];
    const seconds = hint === undefined ? defaultIdleSeconds : Math.min(Number(hint) - 1, maxIdleSeconds);
    return seconds > 0 ? { seconds } : null;
  }

  /** Returns all values of a field as one list (RFC 9110, 5.3), or null. The name must be in lower case. */
  #readField(lowerName: string): string | null {
    const fields = this.#fields;
    let found: string | null = null;
    for (let at = 0; at < fields.length; at += 2) {
      const name = fields[at] ?? "";
      if (name.length !== lowerName.length || name.toLowerCase() !== lowerName) continue;
      found = found === null ? (fields[at + 1] ?? "") : `${found}, ${fields[at + 1]}`;
    }
    return found;
  }

  #endChunk(line: string): void {
    if (line !== "") throw makeInvalidResponse("a chunk is longer than its size");
    this.#state = "size";
  }

  #readSize(line: string): void {
    const size = /^([0-9a-fA-F]{1,12})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?$/.exec(line)?.[1];
    if (size === undefined || line.length > maxChunkLine)
      throw makeInvalidResponse("the size of a chunk is malformed");
    this.#beginChunk(Number.parseInt(size, 16));
  }

  #beginChunk(size: number): void {
    this.#left = size;
    this.#state = size === 0 ? "trailers" : "chunk";
  }
}

const plainLength = /^\d{1,15}$/;

/** The maximum number of digits of a chunk size. */
const maxSizeDigits = 12;

const digitValues = new Int8Array(256).fill(-1);
for (const [value, digit] of [..."0123456789abcdef"].entries()) {
  digitValues[digit.charCodeAt(0)] = value;
  digitValues[digit.toUpperCase().charCodeAt(0)] = value;
}

/** Returns the value of a hexadecimal digit, or a negative number if the byte is not one. */
const parseHexDigit = (byte: number | undefined): number =>
  byte === undefined ? -1 : (digitValues[byte] ?? -1);

const versionPrefix = "HTTP/1.";
const statusLine = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?$/;
const tokenPattern = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const invalidFieldPattern = /[^\t\x20-\x7e\x80-\xff]/;

const makeHeadTooLarge = (): BadResponse =>
  new BadResponse(`response headers larger than ${maxHeadBytes / 1024} KiB`);

const isBlank = (code: number): boolean => code === 32 || code === 9;

function trimValue(line: string, from: number): string {
  let start = from;
  let end = line.length;
  while (start < end && isBlank(line.charCodeAt(start))) start++;
  while (end > start && isBlank(line.charCodeAt(end - 1))) end--;
  return line.slice(start, end);
}

function toHeaderList(fields: readonly string[]): HeaderList {
  const list: [string, string][] = [];
  for (let at = 0; at + 1 < fields.length; at += 2) list.push([fields[at] ?? "", fields[at + 1] ?? ""]);
  return list;
}
