import { buildConsole } from "../scripts/buildConsole.js";

/** Builds the console before the first test, so that no server reads its files while they are written. */
export function setup(): void {
  buildConsole();
}
