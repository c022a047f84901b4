// Everything that a server returns may contain what a stranger chose: labels, URLs, responses. None of it may
// control the terminal.

/**
 * Characters that control a terminal, or change the direction or the visible content of a line. These are C0
 * and C1 controls, line separators, the invisible formatting characters of Unicode, and blanks that are not
 * spaces.
 */
const unsafe =
  /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0]/gu;

/** Marks after the first four on one character. Common scripts need fewer, and a pile covers other lines. */
const surplusMarks = /(?<=\p{M}{4})\p{M}/gu;

/** Returns a string as one line without control characters. Each of them becomes a visible escape. */
export const toSafeLine = (text: string): string =>
  text.replaceAll(unsafe, toEscape).replaceAll(surplusMarks, toEscape);

/** Like `toSafeLine`, but keeps line breaks and tabs. For bodies. */
export const toSafeText = (text: string): string =>
  text
    .replaceAll("\r\n", "\n")
    .replaceAll(unsafe, (character) =>
      character === "\n" || character === "\t" ? character : toEscape(character),
    )
    .replaceAll(surplusMarks, toEscape);

/** Returns a value as one line of JSON, in which control characters are escaped. */
export const toSafeJson = (value: unknown): string =>
  JSON.stringify(value).replaceAll(unsafe, toJsonEscape).replaceAll(surplusMarks, toJsonEscape);

const toJsonEscape = (character: string): string =>
  Array.from({ length: character.length }, (_, at) => toUnicodeEscape(character.charCodeAt(at))).join("");

const shortEscapes: ReadonlyMap<string, string> = new Map([
  ["\n", String.raw`\n`],
  ["\r", String.raw`\r`],
  ["\t", String.raw`\t`],
]);

const toEscape = (character: string): string =>
  shortEscapes.get(character) ?? `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;

const toUnicodeEscape = (unit: number): string => `\\u${unit.toString(16).padStart(4, "0")}`;

const segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });

/** Characters that take two columns: emoji, and the wide characters of East Asia. */
const wide = new RegExp(
  [
    /\p{Emoji_Presentation}|[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97c\uac00-\ud7a3]/u,
    /[\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]/u,
  ]
    .map(({ source }) => source)
    .join("|"),
  "u",
);

const asciiOnly = /^[\x20-\x7e]*$/;

/** Returns how many columns of a terminal a line takes. */
export function widthOf(line: string): number {
  if (asciiOnly.test(line)) return line.length;
  let width = 0;
  for (const { segment } of segmenter.segment(line)) width += widthOfCharacter(segment);
  return width;
}

const widthOfCharacter = (character: string): number =>
  /^\p{M}+$/u.test(character) ? 0 : wide.test(character) || character.includes("\u{fe0f}") ? 2 : 1;

/** Returns a line that takes at most `width` columns. An ellipsis replaces the part that is cut. */
export function fitLine(line: string, width: number): string {
  if (asciiOnly.test(line) ? line.length <= width : widthOf(line) <= width) return line;
  let fitted = "";
  let used = 0;
  for (const { segment } of segmenter.segment(line)) {
    used += widthOfCharacter(segment);
    if (used > width - 1) break;
    fitted += segment;
  }
  return width > 0 ? `${fitted}…` : "";
}
