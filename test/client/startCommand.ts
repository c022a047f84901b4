import { spawn } from "node:child_process";
import { once } from "node:events";
import { Command } from "commander";
import { onTestFinished } from "vitest";
import { addClientCommands } from "../../src/client/commands.ts";
import { builtCommand } from "../server/builtProgram.ts";
import type { Ended } from "../server/waypost.ts";
import { developmentToken } from "../server/waypost.ts";

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

/** A command of the program: its words, and how many arguments it takes. */
type Listed = { words: readonly string[]; argumentCount: number };

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
      ? [{ words, argumentCount: command.registeredArguments.length }]
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
