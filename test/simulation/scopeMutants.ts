import type { Commands, InputOf } from "../../src/core/commands/index.ts";
import { asked } from "./bent.ts";

/** A publish that overlooks some of the destinations that its token is good for. */
const overlooking = (isOverlooked: (destination: string) => boolean): Commands =>
  asked("publish", (input): InputOf<"publish"> => {
    const { scope } = input;
    return scope ? { ...input, scope: { ...scope, destinations: scope.destinations.filter((one) => !isOverlooked(one)) } } : input;
  });

/** Faults of what tokens are good for. */
export const scopeMutants: Record<string, Commands> = {
  "a token is good for everything": overlooking(() => true),
  "a token is good for every queue": overlooking((destination) => destination.startsWith("queue:")),
  "a token is not good for a group that it names": overlooking((destination) => destination.startsWith("group:")),
  "a token is good for the first destination alone": asked("publish", (input): InputOf<"publish"> => {
    const { scope } = input;
    return scope ? { ...input, scope: { ...scope, destinations: scope.destinations.slice(0, 1) } } : input;
  }),
};
