import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import type { Ended } from "../process/waypost.ts";
import { developmentToken } from "../process/waypost.ts";

const bin = fileURLToPath(new URL("../../bin/waypost.js", import.meta.url));

type Command = {
  pid: number;
  out(): string;
  err(): string;
  kill(signal: NodeJS.Signals): void;
  ended: Promise<Ended>;
};

/** Starts a command for a running server, as a program would: without a terminal. */
export function startCommand(
  args: readonly string[],
  environment: NodeJS.ProcessEnv,
  input: string | null = null,
): Command {
  const env = {
    PATH: process.env.PATH,
    NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"],
    ...environment,
  };
  const child = spawn(process.execPath, [bin, ...args], { env, stdio: ["pipe", "pipe", "pipe"] });
  let out = "";
  let err = "";
  child.stdout.on("data", (chunk: Buffer) => (out += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (err += chunk.toString()));
  child.stdin.on("error", () => undefined);
  child.stdin.end(input ?? "");
  onTestFinished(() => void child.kill("SIGKILL"));
  const ended = once(child, "close").then(([code, signal]) => ({
    code: code as number | null,
    signal: signal as NodeJS.Signals | null,
    out,
    err,
  }));
  return {
    pid: child.pid ?? 0,
    out: () => out,
    err: () => err,
    kill: (signal) => void child.kill(signal),
    ended,
  };
}

/** Returns a function that runs commands for a server with the token of the development account. */
export const commandsFor =
  (url: string, environment: NodeJS.ProcessEnv = {}) =>
  (...args: readonly string[]): Promise<Ended> =>
    startCommand(args, { WAYPOST_URL: url, WAYPOST_TOKEN: developmentToken, ...environment }).ended;
