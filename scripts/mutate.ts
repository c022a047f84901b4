// npm run mutate: puts small faults into source files, one at a time, and reports those that no test detects.
// It works on a copy of the project in a temporary folder. See CONTRIBUTING.md.
import { spawn, spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  globSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { Command } from "commander";
import type { Mutation } from "./mutations.ts";
import { listMutations } from "./mutations.ts";

type Fault = Mutation & { file: string };
/** Which tests detected a fault: those of its folder, those of its layer, the rest of `npm test`, or none. */
type Result = "folder" | "layer" | "rest" | "survived";

const home = join(import.meta.dirname, "..");
const options = new Command("npm run mutate --")
  .requiredOption("--files <glob>", "source files, such as 'src/engine/core/**/*.ts'")
  .option("--count <n>", "mutations to try", "20")
  .option(
    "--seed <n>",
    "seed of an earlier run, to repeat its choice",
    String(Math.floor(Math.random() * 1e9)),
  )
  .option("--all", "run the rest of npm test (about 3 minutes) for each mutation that survives its own tests")
  .parse()
  .opts<{ files: string; count: string; seed: string; all?: true }>();

const copy = mkdtempSync(join(tmpdir(), "waypost-mutate-"));
/** Ends the tests that are running. */
let endTests = (): void => undefined;
process.on("exit", () => {
  endTests();
  rmSync(copy, { recursive: true, force: true, maxRetries: 5 });
});
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(1));

async function main(): Promise<void> {
  copyProject();
  const faults = chooseFaults();
  const files = [...new Set(faults.map(({ file }) => file))];
  console.log(`seed ${options.seed}: ${faults.length} mutations in ${files.length} files`);
  const own = [...new Set(files.flatMap((file) => [folderOf(file), layerOf(file)]))];
  const { passed, output } = await runTests(own, 1_200);
  if (!passed) throw new Error(`the tests fail without a mutation; fix them first\n${output}`);
  const results: Record<Result, string[]> = { folder: [], layer: [], rest: [], survived: [] };
  for (const fault of faults) {
    const began = performance.now();
    const result = await tryFault(fault);
    const seconds = ((performance.now() - began) / 1_000).toFixed(1);
    results[result].push(describeFault(fault));
    console.log(`${result.padEnd(8)} ${seconds.padStart(6)} s  ${fault.file}:${lineOf(fault)}`);
  }
  report(results);
}

/** Copies the files known to git and the new ones, so that the user's folder never changes. */
function copyProject(): void {
  const { stdout } = spawnSync("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], {
    cwd: home,
    encoding: "utf8",
  });
  for (const name of stdout.split("\0"))
    if (name !== "" && existsSync(join(home, name)))
      cpSync(join(home, name), join(copy, name), { recursive: true });
  symlinkSync(join(home, "node_modules"), join(copy, "node_modules"), "junction");
}

/** Chooses mutations by the seed, each at most once. */
function chooseFaults(): Fault[] {
  const files = globSync(options.files, { cwd: home })
    .filter((file) => /\.(ts|js)$/.test(file))
    .toSorted();
  const all: Fault[] = [];
  for (const file of files)
    for (const mutation of listMutations(file, readFileSync(join(home, file), "utf8")))
      all.push({ ...mutation, file });
  if (all.length === 0)
    throw new Error(
      `--files ${options.files}: no mutations found; use paths of source files, relative to the project`,
    );
  const random = randomFrom(Number(options.seed));
  const chosen: Fault[] = [];
  while (chosen.length < Number(options.count) && all.length > 0)
    chosen.push(...all.splice(Math.floor(random() * all.length), 1));
  return chosen;
}

/**
 * Returns a generator of numbers from 0 up to but not including 1 that depend only on the seed (mulberry32).
 */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

async function tryFault(fault: Fault): Promise<Result> {
  const path = join(copy, fault.file);
  const source = readFileSync(path, "utf8");
  writeFileSync(path, source.slice(0, fault.start) + fault.text + source.slice(fault.end));
  try {
    const folder = folderOf(fault.file);
    const layer = layerOf(fault.file);
    if (!(await runTests([folder], 120)).passed) return "folder";
    if (layer !== folder && !(await runTests([layer], 300)).passed) return "layer";
    if (options.all && !(await runTests([], 1_800)).passed) return "rest";
    return "survived";
  } finally {
    writeFileSync(path, source);
  }
}

/**
 * Returns the nearest folder of tests for a source file: test/engine/core/node/ for
 * src/engine/core/node/turns.ts.
 */
function folderOf(file: string): string {
  let folder = dirname(file).replace(/^src/, "test");
  const hasTests = (): boolean =>
    existsSync(join(copy, folder)) &&
    readdirSync(join(copy, folder)).some((name) => name.endsWith(".test.ts"));
  while (folder !== "test" && folder !== "." && !hasTests()) folder = dirname(folder);
  return `${folder}/`;
}

/** Returns the folder of tests of a part: test/engine/core/ for all of src/engine/core. */
function layerOf(file: string): string {
  const folders = folderOf(file)
    .split("/")
    .filter((name) => name !== "");
  const depth = ["engine", "operations"].includes(folders[1] ?? "") ? 3 : 2;
  return `${folders.slice(0, depth).join("/")}/`;
}

/**
 * Runs the quick tests of some folders, or of all, until one fails. Tests that exceed the time limit count as
 * failed.
 */
function runTests(folders: readonly string[], seconds: number): Promise<{ passed: boolean; output: string }> {
  const vitest = join(copy, "node_modules/vitest/vitest.mjs");
  // Pure rules need no database, and starting one takes longer than their tests.
  const isPure = folders.length > 0 && folders.every((folder) => folder.startsWith("test/engine/core/"));
  const child = spawn(process.execPath, [vitest, "run", "--tags-filter=!long", "--bail=1", ...folders], {
    cwd: copy,
    env: {
      ...process.env,
      NO_COLOR: "1",
      ...(isPure ? { TEST_POSTGRES_URL: "postgres://unused.invalid" } : {}),
    },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => (output += text));
  endTests = (): void => {
    if (child.exitCode === null && child.signalCode === null && child.pid !== undefined)
      process.kill(-child.pid, "SIGKILL");
  };
  const timer = setTimeout(endTests, seconds * 1_000);
  return new Promise((resolve) => {
    child.on("close", (code) => {
      clearTimeout(timer);
      resolve({ passed: code === 0, output });
    });
  });
}

const sourceOf = ({ file }: Fault): string => readFileSync(join(home, file), "utf8");
const lineOf = (fault: Fault): number => sourceOf(fault).slice(0, fault.start).split("\n").length;

/** Returns the position of a fault, and its line before and after. */
function describeFault(fault: Fault): string {
  const source = sourceOf(fault);
  const start = source.lastIndexOf("\n", fault.start - 1) + 1;
  const newline = source.indexOf("\n", fault.end);
  const end = newline < 0 ? source.length : newline;
  const shorten = (text: string): string => (text.length > 160 ? `${text.slice(0, 160)} …` : text);
  const before = shorten(source.slice(start, end).trim().replaceAll(/\s+/g, " "));
  const after = shorten(
    (source.slice(start, fault.start) + fault.text + source.slice(fault.end, end))
      .trim()
      .replaceAll(/\s+/g, " "),
  );
  return `${fault.file}:${lineOf(fault)}\n  - ${before}\n  + ${after}`;
}

function report({ folder, layer, rest, survived }: Record<Result, string[]>): void {
  const list = (title: string, faults: readonly string[]): void => {
    if (faults.length > 0) console.log(`\n${title}\n${faults.join("\n")}`);
  };
  list("Detected only by other tests of the layer:", layer);
  list("Detected only by the rest of npm test:", rest);
  list(options.all ? "Survived all of npm test:" : "Survived the tests of the layer:", survived);
  const own = `${folder.length} killed by tests of their folder, ${layer.length} by others of their layer`;
  console.log(
    `\n${own}, ${options.all ? `${rest.length} by the rest of npm test, ` : ""}${survived.length} survived`,
  );
  console.log(`${Math.round(performance.now() / 1_000)} s, seed ${options.seed}`);
}

await main().catch((error: unknown) => {
  console.error(`mutate: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
});
