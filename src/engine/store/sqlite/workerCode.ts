/**
 * The main file of the storage threads. The build replaces this file: in a bundle, it is the code
 * itself, as a string.
 */
export const workerCode: URL | string = new URL("./workerMain.ts", import.meta.url);
