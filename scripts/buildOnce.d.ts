/** A folder, the files that it is built from, and what builds it. */
type Build = { output: string; product: string; sources: readonly string[]; build: () => void };

/**
 * Calls `build`, which writes the folder `output` with the file `product`, unless that file was built from
 * the same sources.
 */
export function buildOnce(build: Build): void;

/** Returns the files in a folder and the folders below it. */
export function listFiles(from: string): string[];
