import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { buildSite } from "../../scripts/buildSite.ts";
import { findFreePort } from "../freePort.ts";
import { builtCommand } from "./builtProgram.ts";
import type { Block } from "./documents.ts";
import { parseBlocks, matchesOutput } from "./documents.ts";
import { startDestination, temporaryFolder } from "./waypost.ts";

// Follows each document from beginning to end in a fresh copy of the project, as a reader who pastes every
// block. `documents.ts` explains how a document marks blocks that cannot be run.

const home = join(import.meta.dirname, "../..");
/** Documents whose commands run in the checkout, as for a first reader. */
const first = [
  "README.md",
  "docs/quickstart.md",
  "docs/quickstart-workflow.md",
  "docs/production-checklist.md",
];
const documents = [...first, ...readdirSync(join(home, "docs/guides")).map((name) => `docs/guides/${name}`)];
/** Documents that `npm test` also follows. The long tests follow the others. */
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

describe("the commands print what the document shows", () => {
  // Several hundred npm commands take long on a slow machine.
  const expectFollowed = async (name: string): Promise<void> => {
    const blocks = blocksIn(name);
    const isBuilt = !first.includes(name);
    const isLinked = isBuilt && !blocks.some(({ commands }) => /npm run .*build/.test(commands));
    const place = await freshPlace({ isBuilt, isLinked });
    // The server and receiver of the quickstart, which guides rely on.
    const starts = blocks
      .filter(({ kind }) => kind === "terminal")
      .map(({ commands }) => commands)
      .join("\n");
    if (!/npm run dev|npm start/.test(starts)) await place.open("npm run dev", "running at");
    if (!/listen 4000/.test(starts)) await place.receive();
    for (const block of blocks) await expectAsWritten(place, block, name);
  };

  test.each(quick)("%s works as written", (name) => expectFollowed(name));
  test.each(documents.filter((name) => !quick.includes(name)))(
    "%s works as written",
    { tags: "long" },
    (name) => expectFollowed(name),
  );
});

const blocksIn = (name: string): Block[] => parseBlocks(readFileSync(join(home, name), "utf8"));

async function expectAsWritten(place: Place, block: Block, name: string): Promise<void> {
  const { kind, commands, printed } = block;
  if (kind === "file") return place.write(block.name, commands);
  if (kind === "terminal") return place.open(commands, block.ready, { isAlone: block.isAlone });
  let { output, failed } = await place.paste(commands);
  // Only after a `sleep` in the commands: a slow machine takes longer than the document says.
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
  /**
   * Runs commands in their own terminal, and resolves when they have printed `ready`. `isAlone`: the other
   * terminals are closed first.
   */
  open(commands: string, ready: string, opening?: Opening): Promise<void>;
  /** Starts a receiver on port 4000 that accepts every request. */
  receive(): Promise<void>;
  paste(commands: string): Promise<{ output: string; failed: string }>;
};

/** The ports that documents use. */
const ports = [8080, 8081, 4000, 4001, 3000, 3001];

/** The files and folders that the commands of documents need. */
const copied = [
  ...["bin", "launch", "scripts", "src", "examples", "package.json", "package-lock.json", ".npmrc"],
  ...["LICENSE", "NOTICE", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "README.md"],
  ...["SECURITY.md", "tsconfig.json"],
  ...["bench", "console", "docs", "site"],
];

/**
 * A separate copy of the project, with ports that are free here. `isBuilt`: `npm run dev`, `npm start` and
 * `npx waypost` start the built program, in a third of the time that the sources take. `isLinked`: links
 * replace the copies of folders, which take longer than most documents. The commands must only read them.
 */
async function freshPlace({ isBuilt, isLinked }: { isBuilt: boolean; isLinked: boolean }): Promise<Place> {
  const folder = join(temporaryFolder(), "waypost");
  mkdirSync(folder);
  // Building the pages of the documentation takes longest, and other tests need them too.
  if (isBuilt && !isLinked) buildSite();
  for (const name of copied) {
    if (isLinked && statSync(join(home, name)).isDirectory())
      symlinkSync(join(home, name), join(folder, name));
    else cpSync(join(home, name), join(folder, name), { recursive: true });
  }
  symlinkSync(join(home, "node_modules"), join(folder, "node_modules"));
  const free = new Map<number, number>();
  for (const port of ports) free.set(port, await findFreePort());
  const here = (text: string): string => renumbered(text, [...free]);
  const written = (text: string): string =>
    renumbered(
      text,
      [...free].map(([port, other]) => [other, port]),
    );
  const env = {
    PATH: `${commandsThatInstallNothing(isBuilt)}${delimiter}${process.env.PATH}`,
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

/** Replaces ports in a string, if a number is preceded by what precedes a port. */
const renumbered = (text: string, pairs: readonly (readonly [from: number, to: number])[]): string =>
  pairs.reduce(
    (so, [from, to]) =>
      so.replaceAll(
        new RegExp(`(:|port[ :]+|listen |PORT=)${from}(?!\\d)`, "g"),
        (_, before) => `${before}${to}`,
      ),
    text,
  );

/**
 * Returns a folder for PATH with two replacements. Its npm cannot change `node_modules`, which belongs to the
 * project. Its npx finds the project's command without searching, which takes npx longer than everything
 * else. (`launcher.test.ts` uses the real ones.)
 */
function commandsThatInstallNothing(isBuilt: boolean): string {
  const folder = temporaryFolder();
  const npm = (process.env.PATH ?? "")
    .split(delimiter)
    .map((part) => join(part, "npm"))
    .find((path) => existsSync(path));
  const waypost = `exec "${process.execPath}" "${isBuilt ? builtCommand() : "bin/waypost.js"}"`;
  const starts = `case "$*" in start|start\\ *|run\\ dev|run\\ dev\\ *)
[ "$1" = run ] && shift
name=$1; shift
[ "$1" = -- ] && shift
${waypost} "$name" "$@";; esac`;
  const scripts = {
    npm: `case "$1" in ci|i|install|add) echo "not here: npm $1" >&2; exit 1;; esac
${isBuilt ? starts : ""}
exec "${npm}" "$@"`,
    npx: `[ "$1" = waypost ] || exit 1\nshift\n${waypost} "$@"`,
  };
  for (const [name, script] of Object.entries(scripts)) {
    writeFileSync(join(folder, name), `#!/bin/sh\n${script}\n`);
    chmodSync(join(folder, name), 0o755);
  }
  return folder;
}

type Where = { cwd: string; env: NodeJS.ProcessEnv };

async function startTerminal(commands: string, ready: string, where: Where) {
  const terminal = spawn("bash", ["-c", commands], {
    ...where,
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  onTestFinished(() => {
    try {
      process.kill(-(terminal.pid ?? 0), "SIGKILL");
    } catch {
      // The terminal was closed.
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

/**
 * Starts a shell that stays open, as for a reader who pastes one block after another. Returns the output of
 * each block, and the command that failed.
 */
function openShell(
  folder: string,
  env: NodeJS.ProcessEnv,
): (commands: string) => Promise<{ output: string; failed: string }> {
  const shell = spawn("bash", [], { cwd: folder, env, stdio: ["pipe", "pipe", "pipe"] });
  onTestFinished(() => void shell.kill("SIGKILL"));
  let said = "";
  shell.stderr.on("data", (chunk: Buffer) => (said += chunk.toString()));
  const lines = createInterface({ input: shell.stdout })[Symbol.asyncIterator]();
  shell.stdin.write(`trap 'echo "failed command:  $BASH_COMMAND"' ERR\n`);
  return async (commands) => {
    said = "";
    shell.stdin.write(`${commands}\nprintf '\\n%s\\n' "$((6 * 7)) is the end"\n`);
    let output = "";
    let failed = "";
    for (;;) {
      const { done, value } = await lines.next();
      if (done === true) throw new Error(`the shell ended in\n${commands}\n${said}`);
      if (value === "42 is the end") return { output, failed: failed && `${failed}${said}` };
      if (value.startsWith("failed command: ")) failed += `${value}\n`;
      else output += `${value}\n`;
    }
  };
}
