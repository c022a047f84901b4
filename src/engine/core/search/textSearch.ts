import type { DeadLetter } from "../model/deadLetter.ts";
import type { StoredMessage } from "../model/message.ts";
import type { Run } from "../model/run.ts";
import { formatFailure, formatRunFailure } from "../model/failureText.ts";
import type { Bytes } from "../values/basics.ts";

// The text that a search reads of messages, dead letters and runs. Headers are never searched, because they
// have credentials. Redacted bodies are not searched either.

/** The parts of things that a search reads, in this order. */
export const searchedParts = ["id", "label", "url", "error", "response", "body"] as const;
/** A part of something that a search reads. */
export type SearchedPart = (typeof searchedParts)[number];

/** Searched text, and the part that it is. */
export type SearchedText = readonly [part: SearchedPart, text: string];

/** The first place where something contains the wanted text, with a few words around it. */
export type TextMatch = { part: SearchedPart; excerpt: string };

/** The length of the text to search for, in characters. */
export const searchedLength = { min: 2, max: 200 } as const;
/** A larger body is not searched, in bytes. */
export const maxSearchedBody = 1024 * 1024;

/** The characters of an excerpt before the match, and after its beginning. */
const before = 40;
const after = 120;

/** Returns the first text that contains the wanted one. Upper and lower case count as equal. */
export function findText(texts: Iterable<SearchedText>, wanted: string): TextMatch | null {
  const lower = wanted.toLowerCase();
  for (const [part, text] of texts) {
    const at = text.toLowerCase().indexOf(lower);
    if (at >= 0) return { part, excerpt: cutAround(text, at) };
  }
  return null;
}

function cutAround(text: string, at: number): string {
  const from = Math.max(0, at - before);
  const to = Math.min(text.length, at + after);
  return `${from > 0 ? "…" : ""}${text.slice(from, to).toWellFormed()}${to < text.length ? "…" : ""}`;
}

/** Yields what is searched of a message. A body is decoded only if it is reached. */
export function* listMessageTexts(message: StoredMessage): Generator<SearchedText> {
  yield ["id", message.id];
  for (const label of message.labels) yield ["label", label];
  yield ["url", message.url];
  if (message.redaction?.body !== true) yield ["body", decode(message.body)];
}

/** Yields what is searched of a dead letter and its message. */
export function* listDeadLetterTexts(
  deadLetter: DeadLetter,
  message: StoredMessage,
): Generator<SearchedText> {
  yield ["id", deadLetter.id];
  yield ["error", formatFailure(deadLetter, message.redaction)];
  if (message.redaction?.body !== true) yield ["response", decode(deadLetter.body)];
  yield* listMessageTexts(message);
}

/** Yields what is searched of a run. `payload` is its initial payload, or null if that is not read. */
export function* listRunTexts(run: Run, payload: Bytes | null): Generator<SearchedText> {
  yield ["id", run.runId];
  for (const label of run.labels) yield ["label", label];
  yield ["url", run.url];
  if (run.failure) yield ["error", formatRunFailure(run.failure, run.redaction)];
  if (payload && run.redaction?.body !== true) yield ["body", decode(payload)];
}

/** Returns the text of a body. It is empty for a body that is not UTF-8. */
function decode(body: Bytes): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(body);
  } catch {
    return "";
  }
}
