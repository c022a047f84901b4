/** The folder of the project or of the installed package, without a trailing slash. */
export const home: string;
/** Prints a message and ends the process with code 1. */
export function fail(message: string): never;
