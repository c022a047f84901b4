/** A folder, the files that it is built from, and what builds it. */
type Build = { output: string; sources: readonly string[]; build: () => void };

/** Calls `build`, which writes the folder `output`, unless that folder was built from the same sources. */
export function buildOnce(build: Build): void;

/** Returns the files in a folder and the folders below it. */
export function listFiles(from: string): string[];
