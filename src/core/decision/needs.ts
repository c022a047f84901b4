import type { Needs } from "./command.ts";

/** The needs of many as the needs of one, where all of them are lists. */
export function together(all: readonly Needs[]): Needs {
  if (all.length === 1 && all[0]) return all[0];
  const joined: Record<string, unknown[]> = {};
  for (const needs of all) {
    for (const [name, list] of Object.entries(needs)) if (Array.isArray(list)) (joined[name] ??= []).push(...(list as unknown[]));
  }
  const outlines = all.flatMap((needs) => needs.outlines ?? []);
  return {
    ...(joined as Needs),
    outlines: {
      envelopes: outlines.flatMap(({ envelopes = [] }) => envelopes),
      deadLetters: outlines.flatMap(({ deadLetters = [] }) => deadLetters),
      steps: outlines.flatMap(({ steps = [] }) => steps),
    },
  };
}
