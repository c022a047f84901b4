import { spawn } from "node:child_process";
import { once } from "node:events";
import { Command } from "commander";
import { expect, onTestFinished } from "vitest";
import { addClientCommands } from "../../src/client/commands.ts";
import { builtCommand } from "../server/builtProgram.ts";
import type { Ended } from "../server/waypost.ts";
import { developmentToken, startWaypost } from "../server/waypost.ts";

type Started = {
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
): Started {
  const env = {
    PATH: process.env.PATH,
    NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"],
    ...environment,
  };
  const child = spawn(process.execPath, [builtCommand(), ...args], { env, stdio: ["pipe", "pipe", "pipe"] });
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

/** Runs a command that succeeds. */
export async function expectDone(
  run: (...args: readonly string[]) => Promise<Ended>,
  ...args: readonly string[]
): Promise<Ended> {
  const ended = await run(...args);
  expect(ended, args.join(" ")).toMatchObject({ code: 0 });
  return ended;
}

/** Starts a server for development. `run` runs a command for it, and `runJson` reads what it prints. */
export async function startServer() {
  const server = await startWaypost(["dev", "--port", "0"]);
  const run = commandsFor(server.url);
  const runJson = async (...args: readonly string[]): Promise<Record<string, unknown>> =>
    JSON.parse((await expectDone(run, ...args, "--json")).out) as Record<string, unknown>;
  return { server, run, runJson };
}

/** A command of the program: its words, how many arguments it takes, and the options that it needs. */
type Listed = { words: readonly string[]; argumentCount: number; needed: readonly string[] };

/**
 * Returns the options without which a command does not run. Each names an address, or a file, and this one
 * exists.
 */
const listNeeded = ({ options }: Command): string[] =>
  options.flatMap(({ mandatory, long = "" }) =>
    mandatory ? [long, long === "--to" ? "http://127.0.0.1:9" : import.meta.filename] : [],
  );

/**
 * Returns all commands, and a function that runs one in this process. It returns the error, or null. Use it
 * for commands that fail before they print.
 */
export function openCommands(url: string) {
  const environment = { WAYPOST_URL: url, WAYPOST_TOKEN: developmentToken };
  const open = (): Command => {
    const program = new Command().exitOverride().configureOutput({ writeErr: () => undefined });
    addClientCommands(program, { environment });
    return program;
  };
  const list = (command: Command, words: readonly string[] = []): Listed[] =>
    command.commands.length === 0
      ? [{ words, argumentCount: command.registeredArguments.length, needed: listNeeded(command) }]
      : command.commands.flatMap((one) => list(one, [...words, one.name()]));
  const run = (...words: readonly string[]): Promise<unknown> =>
    open()
      .parseAsync(words, { from: "user" })
      .then(
        () => null,
        (error: unknown) => error,
      );
  return { commands: list(open()), run };
}
