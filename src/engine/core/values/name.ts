import { limits } from "./limits.ts";

/**
 * Reports whether a string may be the name of a queue, a URL group or a schedule: it must be safe as a
 * segment of a path. One or two dots are not a name, because clients treat them as dot segments in every
 * encoding.
 */
export const isName = (text: string): boolean =>
  text.length <= limits.nameLength && /^(?!\.{1,2}$)[A-Za-z0-9._-]+$/.test(text);

/**
 * Returns the beginning of a string, at most `maxLength` characters. A shortened text ends with an ellipsis.
 */
export const truncateText = (text: string, maxLength: number): string =>
  text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text;
