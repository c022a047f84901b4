import type { Needs } from "./command.ts";

/** Merges several needs into one. Only needs that are lists, and `withoutBodies`, are merged. */
export function mergeNeeds(all: readonly Needs[]): Needs {
  if (all.length === 1 && all[0]) return all[0];
  const joined: Record<string, unknown[]> = {};
  for (const needs of all) {
    for (const [name, list] of Object.entries(needs))
      if (Array.isArray(list)) (joined[name] ??= []).push(...(list as unknown[]));
  }
  const withoutBodies = all.flatMap((needs) => needs.withoutBodies ?? []);
  return {
    ...(joined as Needs),
    withoutBodies: {
      storedMessages: withoutBodies.flatMap(({ storedMessages = [] }) => storedMessages),
      deadLetters: withoutBodies.flatMap(({ deadLetters = [] }) => deadLetters),
      steps: withoutBodies.flatMap(({ steps = [] }) => steps),
    },
  };
}
