/**
 * The program that writes a replica. The build replaces this file: in a bundle, it is the code itself, as a
 * string.
 */
export const writerCode: URL | string = new URL("./writerMain.ts", import.meta.url);
