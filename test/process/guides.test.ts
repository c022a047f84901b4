import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmodSync, cpSync, existsSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import type { Block } from "./documents.ts";
import { parseBlocks, matchesOutput } from "./documents.ts";
import { startDestination, temporaryFolder } from "./waypost.ts";

// Each document is followed from its beginning to its end, in a fresh copy of the project, as by somebody who pastes every block of
// commands. How a document says what cannot be run: see `documents.ts`.

const home = join(import.meta.dirname, "../..");
const documents = ["README.md", ...readdirSync(join(home, "docs/guides")).map((name) => `docs/guides/${name}`)];
/** Followed by `npm test` as well; the others by the long tests. */
const quick = ["docs/guides/queues.md", "docs/guides/schedules.md"];

test("every document has commands", () => {
  expect(documents.length).toBeGreaterThan(12);
  expect(documents).toEqual(expect.arrayContaining(quick));
  for (const name of documents)
    expect(
      blocksIn(name).some(({ kind }) => kind === "run"),
      name,
    ).toBe(true);
});

describe("the commands do what is written beside them", () => {
  // Some hundred commands of npm: on a slow machine they take their time.
  const expectFollowed = async (name: string): Promise<void> => {
    const blocks = blocksIn(name);
    const place = await freshPlace();
    // What a guide needs, and leaves to the first pages of the README.
    const starts = blocks
      .filter(({ kind }) => kind === "terminal")
      .map(({ commands }) => commands)
      .join("\n");
    if (!/npm run dev|npm start/.test(starts)) await place.open("npm run dev", "running at");
    if (!/listen 4000/.test(starts)) await place.receive();
    for (const block of blocks) await expectAsWritten(place, block, name);
  };

  test.each(quick)("%s", { timeout: 600_000 }, (name) => expectFollowed(name));
  test.each(documents.filter((name) => !quick.includes(name)))("%s", { tags: "long", timeout: 600_000 }, (name) => expectFollowed(name));
});

const blocksIn = (name: string): Block[] => parseBlocks(readFileSync(join(home, name), "utf8"));

async function expectAsWritten(place: Place, block: Block, name: string): Promise<void> {
  const { kind, commands, printed } = block;
  if (kind === "file") return place.write(block.name, commands);
  if (kind === "terminal") return place.open(commands, block.ready, { isAlone: block.isAlone });
  let { output, failed } = await place.paste(commands);
  // Only where a reader is bidden to wait: a slow machine takes longer than the document says.
  for (let turn = 0; turn < 2_000 && /\bsleep\b/.test(commands) && !matchesOutput(output, printed); turn++) {
    await pause(100);
    ({ output, failed } = await place.paste(commands.replaceAll(/\bsleep [\d.]+/g, "true")));
  }
  const where = `${name}\n${commands}`;
  expect(failed, where).toBe("");
  expect(matchesOutput(output, printed), `${where}\nprinted:\n${output}\nexpected:\n${printed}`).toBe(true);
  if (printed === "") expect(output, where).not.toContain('"error"');
}

type Opening = { isAlone?: boolean };
type Place = {
  write(name: string, text: string): void;
  /** Runs commands in a terminal of their own, and resolves when they have printed `ready`. `isAlone`: the others are closed first. */
  open(commands: string, ready: string, opening?: Opening): Promise<void>;
  /** Something on port 4000 that takes whatever comes. */
  receive(): Promise<void>;
  paste(commands: string): Promise<{ output: string; failed: string }>;
};

/** The ports that documents name. */
const ports = [8080, 8081, 4000, 4001, 3000, 3001];

/** A copy of the project that is used for nothing else, with ports that are free here. */
async function freshPlace(): Promise<Place> {
  const folder = join(temporaryFolder(), "waypost");
  for (const name of ["bin", "scripts", "src", "examples", "package.json", "package-lock.json", ".npmrc"])
    cpSync(join(home, name), join(folder, name), { recursive: true });
  symlinkSync(join(home, "node_modules"), join(folder, "node_modules"));
  const free = new Map<number, number>();
  for (const port of ports) free.set(port, await freePort([...free.values()]));
  const here = (text: string): string => renumbered(text, [...free]);
  const written = (text: string): string =>
    renumbered(
      text,
      [...free].map(([port, other]) => [other, port]),
    );
  const env = {
    PATH: `${commandsThatInstallNothing()}${delimiter}${process.env.PATH}`,
    HOME: folder,
    npm_config_offline: "true",
    NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"],
    WAYPOST_PORT: String(free.get(8080)),
    PORT: String(free.get(3000)),
    QSTASH_URL: here("http://127.0.0.1:8080"),
  };
  const open: { process: ChildProcess; ended: Promise<unknown> }[] = [];
  const shell = openShell(folder, env);
  return {
    write: (name, text) => writeFileSync(join(folder, name), here(text)),
    open: async (commands, ready, { isAlone = false } = {}) => {
      for (const one of isAlone ? open.splice(0) : []) {
        process.kill(-(one.process.pid ?? 0), "SIGINT");
        await one.ended;
      }
      open.push(await startTerminal(here(commands), ready, { cwd: folder, env }));
    },
    receive: async () => void (await startDestination(undefined, free.get(4000))),
    paste: async (commands) => {
      const { output, failed } = await shell(here(commands));
      return { output: written(output), failed };
    },
  };
}

/** Text in which ports are others: where a number follows what it does for a port. */
const renumbered = (text: string, pairs: readonly (readonly [from: number, to: number])[]): string =>
  pairs.reduce(
    (so, [from, to]) => so.replaceAll(new RegExp(`(:|port[ :]+|listen |PORT=)${from}(?!\\d)`, "g"), (_, before) => `${before}${to}`),
    text,
  );

async function freePort(others: readonly number[]): Promise<number> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, "close");
  return others.includes(port) ? freePort(others) : port;
}

/**
 * A folder for PATH: an npm that can do all but change `node_modules`, which are those of the project; and an npx that finds the command of
 * the project without looking for it, which takes npx longer than all the rest. (`launcher.test.ts` uses the real one.)
 */
function commandsThatInstallNothing(): string {
  const folder = temporaryFolder();
  const npm = (process.env.PATH ?? "")
    .split(delimiter)
    .map((part) => join(part, "npm"))
    .find((path) => existsSync(path));
  const scripts = {
    npm: `case "$1" in ci|i|install|add) echo "not here: npm $1" >&2; exit 1;; esac\nexec "${npm}" "$@"`,
    npx: `[ "$1" = waypost ] || exit 1\nshift\nexec "${process.execPath}" bin/waypost.js "$@"`,
  };
  for (const [name, script] of Object.entries(scripts)) {
    writeFileSync(join(folder, name), `#!/bin/sh\n${script}\n`);
    chmodSync(join(folder, name), 0o755);
  }
  return folder;
}

type Where = { cwd: string; env: NodeJS.ProcessEnv };

async function startTerminal(commands: string, ready: string, where: Where) {
  const terminal = spawn("bash", ["-c", commands], { ...where, stdio: ["ignore", "pipe", "pipe"], detached: true });
  onTestFinished(() => {
    try {
      process.kill(-(terminal.pid ?? 0), "SIGKILL");
    } catch {
      // It was closed.
    }
  });
  const ended = once(terminal, "close");
  let printed = "";
  await new Promise<void>((resolve, reject) => {
    const hear = (chunk: Buffer): void => {
      printed += chunk.toString();
      if (printed.includes(ready)) resolve();
    };
    terminal.stdout.on("data", hear);
    terminal.stderr.on("data", hear);
    ended.then(() => reject(new Error(`${commands}\nended, and printed:\n${printed}`)), reject);
  });
  return { process: terminal, ended };
}

/** A shell that stays open, as that of somebody who pastes one block after another. Answers what each prints, and which command failed. */
function openShell(folder: string, env: NodeJS.ProcessEnv): (commands: string) => Promise<{ output: string; failed: string }> {
  const shell = spawn("bash", [], { cwd: folder, env, stdio: ["pipe", "pipe", "pipe"] });
  onTestFinished(() => void shell.kill("SIGKILL"));
  let said = "";
  shell.stderr.on("data", (chunk: Buffer) => (said += chunk.toString()));
  const lines = createInterface({ input: shell.stdout })[Symbol.asyncIterator]();
  shell.stdin.write(`trap 'echo "failed in vain: $BASH_COMMAND"' ERR\n`);
  return async (commands) => {
    said = "";
    shell.stdin.write(`${commands}\nprintf '\\n%s\\n' "$((6 * 7)) is the end"\n`);
    let output = "";
    let failed = "";
    for (;;) {
      const { done, value } = await lines.next();
      if (done === true) throw new Error(`the shell ended in\n${commands}\n${said}`);
      if (value === "42 is the end") return { output, failed: failed && `${failed}${said}` };
      if (value.startsWith("failed in vain: ")) failed += `${value}\n`;
      else output += `${value}\n`;
    }
  };
}
