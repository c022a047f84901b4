import type { Commands, CommandInput } from "../../../src/engine/store/catalog/commands.ts";
import { alterInput } from "./alterDecision.ts";

/** Makes a publish ignore some of the destinations of its token. */
const ignoreDestinations = (isIgnored: (destination: string) => boolean): Commands =>
  alterInput("publish", (input): CommandInput<"publish"> => {
    const { scope } = input;
    return scope
      ? { ...input, scope: { ...scope, destinations: scope.destinations.filter((one) => !isIgnored(one)) } }
      : input;
  });

/** Faults of token scopes. */
export const scopeMutants: Record<string, Commands> = {
  "a token allows every destination": ignoreDestinations(() => true),
  "a token allows every queue": ignoreDestinations((destination) => destination.startsWith("queue:")),
  "a token does not allow its group": ignoreDestinations((destination) => destination.startsWith("group:")),
  "a token allows only its first destination": alterInput("publish", (input): CommandInput<"publish"> => {
    const { scope } = input;
    return scope ? { ...input, scope: { ...scope, destinations: scope.destinations.slice(0, 1) } } : input;
  }),
};
