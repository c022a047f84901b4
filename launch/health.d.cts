/** The default address of a server. */
export const defaultAddress: { readonly host: "127.0.0.1"; readonly port: "8080" };

/** Where the server is. `url` is used instead of the others. */
export type HealthFlags = { url?: string; host?: string; port?: string };

/**
 * Runs `waypost health` if the arguments are valid: prints a line and sets the exit code of the process.
 * Otherwise it does nothing, and the full command line explains what is wrong.
 */
export function answerProbe(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void>;

/** Asks a server whether it can take requests and prints the answer. Returns the exit code. */
export function checkHealth(flags: HealthFlags, environment: NodeJS.ProcessEnv): Promise<0 | 1 | 2>;
