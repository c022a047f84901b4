/** A piece of a string: as it is, or a character that cannot be seen, with the name that is shown for it. */
export type Piece = { text: string; mark?: string };

const names: Readonly<Record<number, string>> = {
  0x00: "NUL",
  0x08: "BS",
  0x0b: "VT",
  0x0c: "FF",
  0x0d: "CR",
  0x1b: "ESC",
  0x7f: "DEL",
  0xa0: "NBSP",
  0xad: "SHY",
  0x061c: "ALM",
  0x200b: "ZWSP",
  0x200c: "ZWNJ",
  0x200d: "ZWJ",
  0x200e: "LRM",
  0x200f: "RLM",
  0x2028: "LS",
  0x2029: "PS",
  0x202a: "LRE",
  0x202b: "RLE",
  0x202c: "PDF",
  0x202d: "LRO",
  0x202e: "RLO",
  0x2060: "WJ",
  0x2066: "LRI",
  0x2067: "RLI",
  0x2068: "FSI",
  0x2069: "PDI",
  0xfeff: "BOM",
  0xfffd: "not UTF-8",
};

/**
 * Control characters except tab and line feed, and characters that hide, join or turn around their
 * neighbours.
 */
const hidden =
  // oxlint-disable-next-line no-control-regex, no-misleading-character-class -- these are what is looked for
  /[\0-\x08\x0b-\x1f\x7f-\xa0\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffd]|\u{e0000}|[\u{e0001}-\u{e007f}]|[\ud800-\udfff]/gu;

/** Splits a string so that every character that cannot be seen can be shown as a mark. */
export function splitHidden(text: string): Piece[] {
  const pieces: Piece[] = [];
  let end = 0;
  for (const { 0: found, index } of text.matchAll(hidden)) {
    if (index > end) pieces.push({ text: text.slice(end, index) });
    const code = found.codePointAt(0) ?? 0;
    const hex = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
    pieces.push({ text: found, mark: names[code] ?? hex });
    end = index + found.length;
  }
  if (end < text.length) pieces.push({ text: text.slice(end) });
  return pieces;
}

/** Returns the number of characters that cannot be seen. */
export const countHidden = (text: string): number => text.match(hidden)?.length ?? 0;

/**
 * Returns a string for a screen reader, in which every character that cannot be seen is replaced by its name.
 */
export const showHidden = (text: string): string =>
  splitHidden(text)
    .map(({ text: piece, mark }) => mark ?? piece)
    .join("");
