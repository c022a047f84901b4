import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import { builtServer } from "./builtProgram.ts";

const sources = fileURLToPath(new URL("../..", import.meta.url));

/** The token of the well-known account of `waypost dev`. */
export const developmentToken = "eyJVc2VySUQiOiJkZWZhdWx0VXNlciIsIlBhc3N3b3JkIjoiZGVmYXVsdFBhc3N3b3JkIn0=";

/** The result of a process that has ended. */
export type Ended = { code: number | null; signal: NodeJS.Signals | null; out: string; err: string };
/** `leave` closes the pipes that its output is read from. */
type Running = {
  pid: number;
  out(): string;
  leave(): void;
  kill(signal: NodeJS.Signals): void;
  ended: Promise<Ended>;
};
/** A running server. */
export type Process = Running & { url: string };

/**
 * Runs the real command line. The process is killed at the end of the test if it still runs. `log` is the
 * file for its log. With `TEST_SOURCES` in `environment`, the folder of another version, or `NODE_OPTIONS`,
 * which may change a module of the sources, it runs the sources.
 */
export function runWaypost(
  args: readonly string[],
  environment: NodeJS.ProcessEnv = {},
  log: string | null = null,
): Running & { ready: Promise<string> } {
  const env = {
    PATH: process.env.PATH,
    NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"],
    ...environment,
  };
  const file = log === null ? null : openSync(log, "w");
  const { TEST_SOURCES: other, NODE_OPTIONS: preload } = environment;
  const main =
    other === undefined && preload === undefined
      ? builtServer()
      : join(other ?? sources, "src/server/cli/main.ts");
  const command = ["--disable-warning=ExperimentalWarning", main, ...args];
  const child = spawn(process.execPath, command, { env, stdio: ["ignore", "pipe", file ?? "pipe"] });
  if (file !== null) closeSync(file);
  const { stdout } = child;
  if (stdout === null) throw new Error("there is no pipe for its output");
  let out = "";
  let err = "";
  child.stderr?.on("data", (chunk: Buffer) => (err += chunk.toString()));
  const ready = new Promise<string>((resolve) => {
    createInterface({ input: stdout }).on("line", (line) => {
      out += `${line}\n`;
      const [, url] = /(?:running at|listening on) (http:[^\s"]+)/.exec(line) ?? [];
      if (url) resolve(url);
    });
  });
  const ended = once(child, "close").then(([code, signal]) => ({
    code: code as number | null,
    signal: signal as NodeJS.Signals | null,
    out,
    err,
  }));
  const kill = (signal: NodeJS.Signals): void => void child.kill(signal);
  const leave = (): void => [stdout, child.stderr].forEach((stream) => void stream?.destroy());
  onTestFinished(() => kill("SIGKILL"));
  return { kill, pid: child.pid ?? 0, ready, out: () => out, leave, ended };
}

/** Starts a server and waits until it serves. Fails with its output if it ends before. */
export async function startWaypost(
  args: readonly string[],
  environment: NodeJS.ProcessEnv = {},
): Promise<Process> {
  const running = runWaypost(args, environment);
  const failed = running.ended.then(({ code, err }) => {
    throw new Error(`waypost ${args.join(" ")} ended with code ${code}: ${err}`);
  });
  const url = await Promise.race([running.ready, failed]);
  failed.catch(() => undefined);
  return { ...running, url };
}

/** Returns the output of `waypost credentials` for a store: `--data` or `--database-url` and its value. */
export async function readCredentials(...store: readonly string[]): Promise<string> {
  const { code, out, err } = await runWaypost(["credentials", ...store]).ended;
  if (code !== 0) throw new Error(err);
  return out;
}

/** Returns a folder that is removed after the test. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "waypost-test-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A request that a destination received. */
export type Arrival = { path: string; method: string; headers: IncomingMessage["headers"]; body: Buffer };
/** `after` is the time before the response, in milliseconds. */
type Answer = { status: number; headers?: Record<string, string>; body?: string; after?: number };

/** Starts a destination on loopback that records requests and responds with `answer`. */
export async function startDestination(
  answer: (arrival: Arrival) => Answer = () => ({ status: 200 }),
  at = 0,
) {
  const arrivals: Arrival[] = [];
  const waiting = new Set<() => void>();
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const arrival = {
      path: request.url ?? "",
      method: request.method ?? "",
      headers: request.headers,
      body: Buffer.concat(chunks),
    };
    arrivals.push(arrival);
    const { status, headers, body, after } = answer(arrival);
    if (after === undefined) response.writeHead(status, headers).end(body);
    for (const check of waiting) check();
    if (after === undefined) return;
    await pause(after, null, { ref: false });
    response.writeHead(status, headers).end(body);
  });
  server.listen(at, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void (server.closeAllConnections(), server.close()));
  const address = server.address();
  const port = address && typeof address === "object" ? address.port : 0;
  /** Resolves as soon as enough requests have arrived. */
  const until = (enough: (arrivals: readonly Arrival[]) => boolean): Promise<void> =>
    new Promise((resolve) => {
      const check = (): void => {
        if (!enough(arrivals)) return;
        waiting.delete(check);
        resolve();
      };
      waiting.add(check);
      check();
    });
  return { url: `http://127.0.0.1:${port}`, arrivals, until };
}
