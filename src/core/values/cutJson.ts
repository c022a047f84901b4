import type { Bytes } from "./basics.ts";

const [quote, backslash, comma, colon] = [0x22, 0x5c, 0x2c, 0x3a];
const [openObject, closeObject, openArray, closeArray] = [0x7b, 0x7d, 0x5b, 0x5d];
const letterU = 0x75;
const spaces: ReadonlySet<number> = new Set([0x20, 0x09, 0x0a, 0x0d]);

/** The objects and lists that are open at a place, the innermost first. */
type Open = { close: number; depth: number; below: Open } | null;

/**
 * Returns the beginning of a body, at most `most` bytes. If the body begins as a JSON object or list, the result is valid JSON: what was
 * open at the cut is closed, and a member that has no value yet is left out. No character of UTF-8 is cut in two.
 */
export function cutJson(body: Bytes, most: number): Bytes {
  const first = body.find((byte) => !spaces.has(byte));
  if (first !== openObject && first !== openArray) return body.subarray(0, wholeCharacters(body, most));
  const cut = lastPlace(body, most);
  const tail: number[] = cut.inText ? [quote] : [];
  for (let open = cut.open; open !== null; open = open.below) tail.push(open.close);
  const result = new Uint8Array(cut.end + tail.length);
  result.set(body.subarray(0, cut.end));
  result.set(tail, cut.end);
  return result;
}

type Place = { end: number; open: Open; inText: boolean };

/** The last place at which a JSON text can be closed within `most` bytes. */
function lastPlace(body: Bytes, most: number): Place {
  let open = null as Open;
  let [inText, isKey, expectsKey] = [false, false, false];
  let best: Place = { end: 0, open: null, inText: false };
  /** Bytes of an escape sequence that are still to come. */
  let escaped = 0;
  const mark = (end: number): void => {
    if (end + (open?.depth ?? 0) + (inText ? 1 : 0) <= most) best = { end, open, inText };
  };
  for (let at = 0; at < body.length && at < most; at++) {
    const byte = body[at] ?? 0;
    if (inText) {
      if (escaped > 0) escaped += byte === letterU && escaped === 1 ? 3 : -1;
      else if (byte === backslash) escaped = 1;
      else if (byte === quote) {
        inText = false;
        if (isKey) continue;
      }
      if (escaped === 0 && !isKey && !isContinuation(body[at + 1])) mark(at + 1);
    } else if (byte === quote) {
      [inText, isKey] = [true, expectsKey];
      if (!isKey) mark(at + 1);
    } else if (byte === openObject || byte === openArray) {
      const close = byte === openObject ? closeObject : closeArray;
      open = { close, depth: (open?.depth ?? 0) + 1, below: open };
      expectsKey = byte === openObject;
      mark(at + 1);
    } else if (byte === closeObject || byte === closeArray) {
      open = open?.below ?? null;
      mark(at + 1);
    } else if (byte === comma) {
      // A number or a word before it is whole.
      mark(at);
      expectsKey = open?.close === closeObject;
    } else if (byte === colon) expectsKey = false;
  }
  return best;
}

const isContinuation = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80;

/** The last place at or before `end` where a character of UTF-8 begins. */
function wholeCharacters(body: Bytes, end: number): number {
  let at = Math.min(end, body.byteLength);
  while (at > 0 && at > end - 4 && isContinuation(body[at])) at--;
  return isContinuation(body[at]) ? Math.min(end, body.byteLength) : at;
}
