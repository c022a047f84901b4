import type { Bytes } from "../values/basics.ts";

const quote = 0x22;
const backslash = 0x5c;
const comma = 0x2c;
const colon = 0x3a;
const openObject = 0x7b;
const closeObject = 0x7d;
const openArray = 0x5b;
const closeArray = 0x5d;
const letterU = 0x75;
const spaces: ReadonlySet<number> = new Set([0x20, 0x09, 0x0a, 0x0d]);

/** The JSON objects and lists that are open at a position, the innermost first. */
type OpenContainer = { close: number; depth: number; outer: OpenContainer } | null;

/**
 * Returns the beginning of a body, at most `maxBytes` bytes. If the body begins as a JSON object or list, the
 * result is valid JSON: everything open at the cut is closed, and a member without a value is omitted. A
 * UTF-8 character is never cut in two.
 */
export function truncateJson(body: Bytes, maxBytes: number): Bytes {
  const first = body.find((byte) => !spaces.has(byte));
  if (first !== openObject && first !== openArray) return body.subarray(0, alignToCharacter(body, maxBytes));
  const cut = findLastCutPoint(body, maxBytes);
  const tail: number[] = cut.isInString ? [quote] : [];
  for (let open = cut.open; open !== null; open = open.outer) tail.push(open.close);
  const result = new Uint8Array(cut.end + tail.length);
  result.set(body.subarray(0, cut.end));
  result.set(tail, cut.end);
  return result;
}

type CutPoint = { end: number; open: OpenContainer; isInString: boolean };

/** Returns the last position at which a JSON text can be closed within `maxBytes` bytes. */
function findLastCutPoint(body: Bytes, maxBytes: number): CutPoint {
  let open = null as OpenContainer;
  let isInString = false;
  let isKey = false;
  let expectsKey = false;
  let best: CutPoint = { end: 0, open: null, isInString: false };
  /** The number of bytes of the current escape sequence that have not been read yet. */
  let escaped = 0;
  const recordCutPoint = (end: number): void => {
    if (end + (open?.depth ?? 0) + (isInString ? 1 : 0) <= maxBytes) best = { end, open, isInString };
  };
  for (let at = 0; at < body.length && at < maxBytes; at++) {
    const byte = body[at] ?? 0;
    if (isInString) {
      if (escaped > 0) escaped += byte === letterU && escaped === 1 ? 3 : -1;
      else if (byte === backslash) escaped = 1;
      else if (byte === quote) {
        isInString = false;
        if (isKey) continue;
      }
      if (escaped === 0 && !isKey && !isContinuation(body[at + 1])) recordCutPoint(at + 1);
    } else if (byte === quote) {
      isInString = true;
      isKey = expectsKey;
      if (!isKey) recordCutPoint(at + 1);
    } else if (byte === openObject || byte === openArray) {
      const close = byte === openObject ? closeObject : closeArray;
      open = { close, depth: (open?.depth ?? 0) + 1, outer: open };
      expectsKey = byte === openObject;
      recordCutPoint(at + 1);
    } else if (byte === closeObject || byte === closeArray) {
      open = open?.outer ?? null;
      recordCutPoint(at + 1);
    } else if (byte === comma) {
      // A comma ends a number or a literal.
      recordCutPoint(at);
      expectsKey = open?.close === closeObject;
    } else if (byte === colon) expectsKey = false;
  }
  return best;
}

const isContinuation = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80;

/** Returns the last position at or before `end` at which a UTF-8 character begins. */
function alignToCharacter(body: Bytes, end: number): number {
  let at = Math.min(end, body.byteLength);
  while (at > 0 && at > end - 4 && isContinuation(body[at])) at--;
  return isContinuation(body[at]) ? Math.min(end, body.byteLength) : at;
}
