import type { Commands, CommandInput } from "../../src/core/commands/index.ts";
import { alterInput } from "./alterDecision.ts";

/** A publish that overlooks some of the destinations that its token is good for. */
const ignoreDestinations = (isIgnored: (destination: string) => boolean): Commands =>
  alterInput("publish", (input): CommandInput<"publish"> => {
    const { scope } = input;
    return scope ? { ...input, scope: { ...scope, destinations: scope.destinations.filter((one) => !isIgnored(one)) } } : input;
  });

/** Faults of what tokens are good for. */
export const scopeMutants: Record<string, Commands> = {
  "a token is good for everything": ignoreDestinations(() => true),
  "a token is good for every queue": ignoreDestinations((destination) => destination.startsWith("queue:")),
  "a token is not good for a group that it names": ignoreDestinations((destination) => destination.startsWith("group:")),
  "a token is good for the first destination alone": alterInput("publish", (input): CommandInput<"publish"> => {
    const { scope } = input;
    return scope ? { ...input, scope: { ...scope, destinations: scope.destinations.slice(0, 1) } } : input;
  }),
};
