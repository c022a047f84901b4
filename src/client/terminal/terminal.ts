import { createInterface } from "node:readline";
import { Writable } from "node:stream";
import { styleText } from "node:util";
import { CommandFailed } from "./commandFailed.ts";

type Style = "bold" | "dim" | "red" | "green" | "yellow" | "cyan";

/** Returns a string in a style if the output is a terminal with colours. `NO_COLOR` turns colours off. */
export const styled = (style: Style, text: string): string =>
  styleText(style, text, { stream: process.stdout });

/** Prints a line of the result. */
export const print = (line: string): void => void process.stdout.write(`${line}\n`);

/** Prints a line that is not part of the result, such as a warning. */
export const note = (line: string): void => void process.stderr.write(`${line}\n`);

/** Returns how many columns the output may use. Null: it is not a terminal, and nothing is cut. */
export const columnsOfOutput = (): number | null =>
  process.stdout.isTTY ? Math.max(20, process.stdout.columns || 80) : null;

/** Clears the terminal before the output is printed again. */
export const clearScreen = (): void => {
  if (process.stdout.isTTY) process.stdout.write("\u001b[H\u001b[2J\u001b[3J");
};

/** Reports whether a person can answer a question. */
export const canAsk = (): boolean => process.stdin.isTTY && process.stderr.isTTY;

/**
 * Asks a person and returns the answer. `isSecret`: what is typed is not shown. Fails if the input ends
 * before the answer.
 */
export function ask(question: string, { isSecret = false } = {}): Promise<string> {
  process.stderr.write(question);
  const output = isSecret ? new Writable({ write: (_, __, done) => done() }) : process.stderr;
  const input = createInterface({ input: process.stdin, output, terminal: process.stdin.isTTY });
  return new Promise((resolve, reject) => {
    input.once("line", (line) => {
      resolve(line.trim());
      input.close();
      if (isSecret) process.stderr.write("\n");
    });
    input.once("SIGINT", () => {
      process.stderr.write("\n");
      reject(new CommandFailed("interrupted", "interrupted; nothing was changed"));
      input.close();
    });
    input.once("close", () => reject(new CommandFailed("failed", "the input ended before an answer")));
  });
}

/** Returns the first line of the input, for programs that pass a secret. */
export async function readFirstLine(): Promise<string> {
  const lines = createInterface({ input: process.stdin });
  for await (const line of lines) {
    lines.close();
    return line.trim();
  }
  return "";
}

/**
 * Asks before something is changed. Fails if the answer is not yes, or if nobody can answer. `isAgreed`: the
 * question is not asked.
 */
export async function requireConsent(question: string, isAgreed: boolean): Promise<void> {
  if (isAgreed) return;
  if (!canAsk()) throw new CommandFailed("usage", `${question} Add --yes to do it without a question`);
  const answer = await ask(`${question} [y/N] `);
  if (!/^y(es)?$/i.test(answer)) throw new CommandFailed("failed", "nothing was changed");
}
