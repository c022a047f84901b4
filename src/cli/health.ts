import { get as getHttp } from "node:http";
import type { IncomingMessage } from "node:http";
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { defaultAddress } from "../server/defaultAddress.ts";

// The package runs this file alone, before it loads the server, because containers run
// `waypost health` often. So it imports nothing large.

/** Where the server is. `url` is used instead of the others. */
export type HealthFlags = { url?: string; host?: string; port?: string };

/** How long the server may take to respond, in milliseconds. Its own check of the store takes at most 2 s. */
const timeout = 4_000;

/**
 * Runs `waypost health` if the arguments are valid: prints a line and sets the exit code of the process.
 * Otherwise it does nothing, and the full command line explains what is wrong.
 */
export async function answerProbe(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
  const flags = readFlags(args);
  if (flags !== null) process.exitCode = await checkHealth(flags, environment);
}

function readFlags(args: readonly string[]): HealthFlags | null {
  const text = { type: "string" } as const;
  try {
    return parseArgs({ args: args.slice(1), options: { url: text, host: text, port: text } }).values;
  } catch {
    return null;
  }
}

/** Asks a server whether it can take requests and prints the answer. Returns the exit code. */
export async function checkHealth(flags: HealthFlags, environment: NodeJS.ProcessEnv): Promise<0 | 1 | 2> {
  const address = flags.url ?? toUrl(flags, environment);
  if (!/^https?:/.test(address) || !URL.canParse(address)) {
    process.stderr.write(
      `waypost: --url: "${address}" is not a URL; use one such as http://127.0.0.1:8080\n`,
    );
    return 2;
  }
  const url = `${address.replace(/\/+$/, "")}/v2/health/ready`;
  const problem = await findProblem(url);
  if (problem === null) process.stdout.write("ready\n");
  else process.stderr.write(`waypost: not ready: ${url}: ${problem}\n`);
  return problem === null ? 0 : 1;
}

function toUrl({ host, port }: HealthFlags, environment: NodeJS.ProcessEnv): string {
  const inFile = readAddress(environment.WAYPOST_CONFIG);
  const listening = host ?? environment.WAYPOST_HOST ?? inFile.host ?? defaultAddress.host;
  const loopback = listening === "0.0.0.0" ? "127.0.0.1" : listening === "::" ? "::1" : listening;
  const name = loopback.includes(":") ? `[${loopback}]` : loopback;
  return `http://${name}:${port ?? environment.WAYPOST_PORT ?? inFile.port ?? defaultAddress.port}`;
}

/** Reads the address in a configuration file. The server itself reports what is wrong with the file. */
function readAddress(path: string | undefined): { host?: string; port?: string | number } {
  try {
    return path ? (JSON.parse(readFileSync(path, "utf8")) as { host?: string; port?: number }) : {};
  } catch {
    return {};
  }
}

/** Returns why the server cannot take requests, or null if it can. */
async function findProblem(url: string): Promise<string | null> {
  try {
    const { statusCode, body } = await fetchText(url);
    return statusCode === 200 ? null : `status ${statusCode}${body === "" ? "" : `, ${body}`}`;
  } catch (error) {
    const isTimeout = error instanceof Error && error.name === "AbortError";
    if (isTimeout) return `no response within ${timeout / 1000} s`;
    return error instanceof Error ? error.message || String(Reflect.get(error, "code")) : String(error);
  }
}

/** The most characters of a response that are printed. */
const shownText = 500;

async function fetchText(url: string): Promise<{ statusCode: number | undefined; body: string }> {
  // TLS takes a tenth of the memory, and most probes do not need it.
  const get = url.startsWith("https:") ? (await import("node:https")).get : getHttp;
  return new Promise((resolve, reject) => {
    const options = { signal: AbortSignal.timeout(timeout), agent: false } as const;
    get(url, options, (response: IncomingMessage) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => (body = (body + chunk).slice(0, shownText)));
      response.on("error", reject);
      response.on("end", () => resolve({ statusCode: response.statusCode, body: body.trim() }));
    }).on("error", reject);
  });
}
