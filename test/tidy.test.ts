import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join, relative, resolve, sep } from "node:path";
import { againOnFastPath, againOnFramework } from "./api/twice.ts";
import { describe, expect, test } from "vitest";

// The rules of the house that a machine can check. Each failure names the file and says why the rule is there.
// What a linter checks (functions of 70 lines at most, no `any`) is in .oxlintrc.json.

const home = resolve(import.meta.dirname, "..");
const sources = filesIn("src");
const all = [...sources, ...filesIn("test"), ...filesIn("bench"), ...filesIn("scripts")];

test("there is something to check", () => {
  expect(sources).toContain("src/core/decision/command.ts");
  expect(importsOf("src/core/decision/command.ts")).toContain("src/core/model/message.ts");
});

describe("imports", () => {
  // What the folders of src may import, besides their own.
  const layers: Record<string, readonly string[]> = {
    core: [],
    clock: ["core"],
    store: ["core"],
    delivery: ["clock", "store", "core"],
    maintenance: ["clock", "store", "core"],
    api: ["store", "core"],
    server: ["api", "maintenance", "delivery", "clock", "store", "core"],
    cli: ["server", "api", "delivery", "clock", "store", "core"],
  };
  // The folders within them, from the ground up: each may import from those before it. "" stands for the files beside the folders.
  const within: Record<string, readonly string[]> = {
    core: [
      "values",
      "model",
      "fairness",
      "decision",
      "search",
      "accounts",
      "nodes",
      "admission",
      "sending",
      "workflows",
      "workflows/log",
      "commands",
    ],
    store: ["queries", "", "batch", "sql", "sqlite", "postgres", "move"],
    delivery: ["http", ""],
    api: [
      ...["http", "auth", "webhooks", "settings", "route", "publishing", "admission", "views"],
      ...["routes/lists", "routes/accounts", "routes/messages", "routes/workflows", "routes", "fastPublish", "server"],
    ],
  };
  // What core may use besides. Croner is pure computation on the instants it is given, as long as it is given no function to run.
  const allowed = new Set(["src/core/values/cron.ts imports croner"]);

  test("point down, between the layers and between the folders of a layer", () => {
    const wrong = sources.flatMap((file) =>
      importsOf(file).flatMap((target) => (mayImport(file, target) ? [] : [`${file} imports ${target}`])),
    );
    const surplus = wrong.filter((line) => !allowed.has(line));
    expect(surplus, "Rules live once because core knows nobody, and a part can be replaced because nobody below knows it.").toEqual([]);
  });

  test("of every folder are within a known one", () => {
    const unknown = sources.filter((file) => {
      const { layer, folder } = placeOf(file);
      return !(layer in layers) || (layer in within ? !within[layer]?.includes(folder) : folder !== "");
    });
    expect(
      unknown,
      "A new folder in src needs a row in `layers` or `within` above: what may it import? No file lies above the folders.",
    ).toEqual([]);
  });

  test("form no circle", () => {
    const circles = sources.flatMap((file) => circleFrom(file));
    expect(circles, "Files that import each other can only be understood, tested and moved together.").toEqual([]);
  });

  test("of a folder are of no more than twenty-five files", () => {
    const sizes = new Map<string, number>();
    for (const file of sources) sizes.set(dirname(file), (sizes.get(dirname(file)) ?? 0) + 1);
    const crowded = [...sizes].filter(([, size]) => size > 25).map(([folder, size]) => `${folder} has ${size} files`);
    expect(crowded, "A folder is one idea. One that holds more is two.").toEqual([]);
  });

  function mayImport(file: string, target: string): boolean {
    const from = placeOf(file);
    // Node's modules and packages.
    if (!/^(src|test|bench|scripts)\//.test(target)) return from.layer !== "core";
    if (!target.startsWith("src/")) return false;
    const to = placeOf(target);
    if (from.layer !== to.layer) return layers[from.layer]?.includes(to.layer) ?? false;
    const order = within[from.layer] ?? [""];
    return order.indexOf(to.folder) <= order.indexOf(from.folder);
  }
});

describe("core is pure", () => {
  const impure: readonly (readonly [name: string, pattern: RegExp])[] = [
    ["reads the clock", /\bDate\.now\b|\bnew Date\(\s*\)|\bDate\(\s*\)|\bperformance\b/],
    ["rolls a die", /\bMath\.random\b|\bcrypto\b/],
    ["waits", /\bsetTimeout\b|\bsetInterval\b|\bsetImmediate\b|\bqueueMicrotask\b|\basync\b|\bawait\b|\bPromise\b/],
    ["touches the process", /\bprocess\b|\bglobalThis\b|\bconsole\b|\bfetch\b/],
    ["loads a module by name", /\brequire\(|\bimport\(/],
  ];

  test.each(impure)("nothing in it %s", (_, pattern) => {
    const why =
      "A decision is run again after a conflict, and replayed by the simulation: it may know its draft and its moment, nothing else.";
    expect(matches(inFolder("src/core/"), pattern), why).toEqual([]);
  });
});

test("only clock/clock.ts reads the clock or sleeps", () => {
  const pattern = /\bDate\.now\b|\bnew Date\(\s*\)|\bperformance\.now\b|\bsetTimeout\b|\bsetInterval\b|node:timers/;
  // A connection in front of another one passes on to it how long it may rest.
  const mayName = new Set(["src/clock/clock.ts", "src/api/route/pipelining.ts"]);
  const others = sources.filter((file) => !mayName.has(file));
  expect(
    matches(others, pattern),
    "Time is one thing: whoever needs it is given a clock, so that tests and simulations can set it.",
  ).toEqual([]);
});

test("every file that is to run twice exists", () => {
  for (const pattern of [...againOnFastPath, ...againOnFramework]) {
    const names = /^(.*)\{(.*)\}(.*)$/.exec(pattern);
    const files = names ? (names[2] ?? "").split(",").map((name) => `${names[1]}${name}${names[3]}`) : [pattern];
    for (const file of files) expect(existsSync(new URL(`../${file}`, import.meta.url)), file).toBe(true);
  }
});

test("files have 400 lines at most", () => {
  const long = all.flatMap((file) => {
    const lines = text(file).split("\n").length - 1;
    return lines > 400 ? [`${file} has ${lines} lines`] : [];
  });
  expect(long, "A file that is longer holds more than one thing: give the other one a name and a file.").toEqual([]);
});

test("files are named after what they hold", () => {
  const vague = /^(utils?|helpers?|managers?|types?|common|misc|shared|lib)$/;
  const named = all.filter((file) => vague.test(basename(file).split(".")[0] ?? ""));
  expect(named, "Such a name fits everything, so a stranger cannot guess what is in it. Use a word of docs/vocabulary.md.").toEqual([]);
});

test("nothing is cast to any", () => {
  expect(matches(all, /\bas\s+any\b|<any\s*>/), "`any` switches the type checker off for everything it touches.").toEqual([]);
});

describe("decision records", () => {
  const records = readdirSync(join(home, "docs/decisions")).filter((name) => name.endsWith(".md"));

  test("are numbered without a gap", () => {
    const numbers = records.map((name) => Number(/^(\d{4})-[a-z0-9-]+\.md$/.exec(name)?.[1])).toSorted((a, b) => a - b);
    expect(numbers, "Named NNNN-what-was-chosen.md, so that they read in the order in which they were made.").toEqual(
      numbers.map((_, at) => at + 1),
    );
  });

  test.each(records)("%s tells context, choice and consequences on one page", (name) => {
    const lines = text(`docs/decisions/${name}`).split("\n");
    const headings = lines.filter((line) => line.startsWith("#"));
    const title = new RegExp(`^# ${name.slice(0, 4)}: \\S`);
    expect(headings[0], "The title is the choice, with the number of the record.").toMatch(title);
    expect(headings.slice(1), "Whoever wants to change the choice must find what led to it.").toEqual([
      "## Context",
      "## Choice",
      "## Consequences",
    ]);
    expect(lines.length, "One page is read; more is not.").toBeLessThanOrEqual(70);
  });
});

function filesIn(folder: string): string[] {
  const entries = readdirSync(join(home, folder), { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && /\.(ts|js)$/.test(entry.name))
    .map((entry) => relative(home, join(entry.parentPath, entry.name)).split(sep).join("/"))
    .toSorted();
}

function inFolder(prefix: string): string[] {
  return sources.filter((file) => file.startsWith(prefix));
}

function text(file: string): string {
  return readFileSync(join(home, file), "utf8");
}

/** The folder below src that a file is in, and the folder within that: "" if there is none. */
function placeOf(file: string): { layer: string; folder: string } {
  const [, layer = "", ...folders] = dirname(file).split("/");
  return { layer, folder: folders.join("/") };
}

/** What a file imports: paths from the project's folder, or names of packages and of Node's modules. */
function importsOf(file: string): string[] {
  const statement =
    /^\s*(?:import|export)\b[^;"']*?\bfrom\s*["']([^"']+)["']|^\s*import\s*["']([^"']+)["']|\bimport\(\s*["']([^"']+)["']|new URL\(\s*["']([^"']+\.ts)["']/gm;
  return [...text(file).matchAll(statement)].map((match) => {
    const target = match.slice(1).find((group) => group !== undefined) ?? "";
    return target.startsWith(".") ? join(dirname(file), target).split(sep).join("/") : target;
  });
}

/** The circle of imports that begins and ends at a file, if it is the first one of it by name. */
function circleFrom(start: string): string[] {
  const trails: string[][] = [[start]];
  const seen = new Set<string>();
  for (const trail of trails) {
    for (const target of importsOf(trail.at(-1) ?? start)) {
      if (target === start) return trail.some((file) => file < start) ? [] : [[...trail, start].join(" → ")];
      if (seen.has(target) || !sources.includes(target)) continue;
      seen.add(target);
      trails.push([...trail, target]);
    }
  }
  return [];
}

/** Where a pattern stands in the code of some files, comments and texts left out. */
function matches(files: readonly string[], pattern: RegExp): string[] {
  return files.flatMap((file) =>
    codeOf(file)
      .split("\n")
      .flatMap((line, at) => (pattern.test(line) ? [`${file}:${at + 1}: ${line.trim()}`] : [])),
  );
}

/** The code of a file, line by line. Of texts only the quotes are left, except where they name what is imported. */
function codeOf(file: string): string {
  const lines = (part: string): string => part.replace(/[^\n]/g, "");
  const texts = /\/\*[\s\S]*?\*\/|(?<!:)\/\/[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'/g;
  return text(file).replace(texts, (part) => (part.startsWith('"node:') ? part : lines(part)));
}
