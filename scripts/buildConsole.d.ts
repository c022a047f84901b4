/** Builds the console unless the built one has the present sources. Ends the process if that fails. */
export function buildConsole(): void;
