import type { Command } from "commander";
import { elapsed, systemClock } from "../engine/clock/clock.ts";
import { minute } from "../engine/core/values/time.ts";
import { CommandFailed, exitCodes } from "./terminal/commandFailed.ts";
import type { ApiRequest } from "./connection.ts";
import { callApi, readLines } from "./connection.ts";
import type { Fields } from "./terminal/fields.ts";
import { isObject } from "./terminal/fields.ts";
import { toSafeJson } from "./terminal/safeText.ts";
import { findServer } from "./storedLogin.ts";
import { clearScreen, note, print, styled } from "./terminal/terminal.ts";

/** The things that commands get from the program: its environment. */
export type ClientContext = { environment: NodeJS.ProcessEnv };

/** The flags of every command that reads from a server. */
export type OutputFlags = { json?: true; watch?: string | true };

/** Connects a command to its server. Nothing is sent yet. */
export function connectToApi({ environment }: ClientContext): Api {
  const server = findServer(environment);
  const call = (request: ApiRequest): Promise<unknown> => callApi(server, request);
  return {
    url: server.url,
    call,
    lines: (request) => readLines(server, request),
    read: async (request) => {
      const result = await call(request);
      return isObject(result) ? result : { items: result };
    },
  };
}

/**
 * A connection to a server. `read` returns a list that is not in an object as its field `items`. `lines`
 * yields the lines of a stream.
 */
export type Api = {
  url: string;
  call(request: ApiRequest): Promise<unknown>;
  read(request: ApiRequest): Promise<Fields>;
  lines(request: Pick<ApiRequest, "path" | "query">): AsyncIterable<string>;
};

/** Adds `--json`, which every command has. */
export const withJson = (command: Command): Command =>
  command.option("--json", "print the response of the API as one line of JSON");

/** Adds `--json` and `--watch`. */
export const withOutput = (command: Command): Command =>
  withJson(command).option("--watch [seconds]", "print again every 2 seconds, or as often as given");

/** The output of a command: a value for programs, and lines that describe it to a person. */
export type Shown = { value: unknown; describe(): readonly string[] };

/** Prints a result: as JSON with `--json`, otherwise as lines. */
export const printShown = (flags: OutputFlags, shown: Shown): void =>
  void process.stdout.write(formatShown(flags, shown));

const formatShown = (flags: OutputFlags, { value, describe }: Shown): string =>
  (flags.json ? [toSafeJson(value)] : describe()).map((line) => `${line}\n`).join("");

/**
 * Loads a result and prints it, again and again with `--watch`. While a server that is watched is
 * unavailable, the reason is printed and the next attempt follows.
 */
export async function showResult(flags: OutputFlags, load: () => Promise<Shown>): Promise<void> {
  if (flags.watch === undefined) return printShown(flags, await load());
  const interval = parseInterval(flags.watch);
  const attempt = tolerateOutages();
  for (;;) {
    await attempt(async () => {
      // The old output stays until the new one is complete.
      const text = formatShown(flags, await load());
      if (!flags.json) clearScreen();
      process.stdout.write(text);
      if (!flags.json) print(styled("dim", `every ${interval / 1000} s; Ctrl-C ends`));
    });
    await pause(interval);
  }
}

/** How long a command waits for a server that is unavailable, before it ends. */
export const outageTimeout = 2 * minute;

/**
 * Returns a function that runs another one and ignores that the server is unavailable, so that the caller
 * tries again. It prints the reason once. It fails if the server stays unavailable for `timeout`
 * milliseconds.
 */
export function tolerateOutages(timeout = Infinity): (run: () => Promise<void>) => Promise<void> {
  let since: number | null = null;
  let lastMessage = "";
  return async (run) => {
    try {
      await run();
      since = null;
      lastMessage = "";
    } catch (error) {
      if (!(error instanceof CommandFailed) || error.exitCode !== exitCodes.unavailable) throw error;
      since ??= elapsed();
      if (elapsed() - since >= timeout) throw error;
      if (error.message !== lastMessage) note(`waypost: ${error.message}`);
      lastMessage = error.message;
    }
  };
}

/** Resolves after a time in milliseconds. */
export const pause = (span: number): Promise<void> =>
  systemClock.sleep(systemClock.now() + span, new AbortController().signal);

function parseInterval(value: string | true): number {
  if (value === true) return 2_000;
  const seconds = Number(value);
  if (/^\d+(\.\d+)?$/.test(value) && seconds >= 0.2 && seconds <= 86_400) return seconds * 1000;
  throw new CommandFailed("usage", `--watch: "${value}" is not a number of seconds from 0.2 to 86400`);
}
