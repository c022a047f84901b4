import { limits } from "./limits.ts";

/**
 * Whether a queue, a URL group or a schedule can be called so: what stands in a path, and means nothing else
 * there. One or two dots are no name: clients take them for steps in a path, however they are encoded.
 */
export const isName = (text: string): boolean => text.length <= limits.nameLength && /^(?!\.{1,2}$)[A-Za-z0-9._-]+$/.test(text);

/** The beginning of a text, at most `most` characters. One that is cut ends with an ellipsis. */
export const truncateText = (text: string, maxLength: number): string =>
  text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text;
