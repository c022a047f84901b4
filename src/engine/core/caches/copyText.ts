/**
 * Returns a copy of a string. A part of a long text can keep all of it in memory, for example the head of the
 * request in which it arrived. A string that is kept for long is therefore copied first.
 */
export const copyText = (text: string): string => ` ${text}`.slice(1);
