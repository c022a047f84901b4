import type { Millis } from "../../engine/core/values/basics.ts";
import type { TextMatch } from "../../engine/core/search/textSearch.ts";

/** The kinds of things that a search finds. */
export const foundKinds = [
  "message",
  "deadLetter",
  "run",
  "event",
  "queue",
  "flowControlKey",
  "schedule",
  "urlGroup",
  "source",
] as const;

/**
 * Something that a search found: where it contains the text, and the id by which it is read. `at` is when it
 * was created, failed or changed, or null if that is not known. `url` is its destination.
 */
export type FoundThing = TextMatch & {
  kind: (typeof foundKinds)[number];
  id: string;
  at: Millis | null;
  url: string | null;
};
