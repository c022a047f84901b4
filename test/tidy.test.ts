import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join, relative, resolve, sep } from "node:path";
import { againOnFastPath, againOnFramework } from "./api/twice.ts";
import { isPlaced, isStoredPart, mayImport } from "./border.ts";
import { describe, expect, test } from "vitest";

// Rules for all code of this repository. Each failure names the file and the reason of the rule. The linter
// checks further rules (at most 70 lines per function, no `any`): see .oxlintrc.json.

const home = resolve(import.meta.dirname, "..");
const sources = filesIn("src");
const consoleSources = filesIn("console/src");
const operationNames = readdirSync(join(home, "src/operations"), { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => name)
  .toSorted();
const all = [
  ...sources,
  ...filesIn("test"),
  ...filesIn("bench"),
  ...filesIn("scripts"),
  ...filesIn("launch"),
];

test("there is something to check", () => {
  expect(sources).toContain("src/engine/core/decision/command.ts");
  expect(importsOf("src/engine/core/decision/command.ts")).toContain("src/engine/core/model/message.ts");
});

describe("imports", () => {
  test("stay behind the border, and point down", () => {
    const wrong = sources.flatMap((file) =>
      importsOf(file).flatMap((target) => (mayImport(file, target) ? [] : [`${file} imports ${target}`])),
    );
    expect(
      wrong,
      "docs/architecture.md shows the border. Code that imports nothing above it can be read, tested " +
        "and replaced by itself, and an operation that no other imports can be dropped.",
    ).toEqual([]);
  });

  test("of the commands for a running server load nothing of the server", () => {
    const loaded = ["src/client/main.ts"];
    for (const file of loaded)
      for (const target of sources.includes(file) ? importsOf(file, "values") : [])
        if (!loaded.includes(target)) loaded.push(target);
    const pure = /^src\/(?:client|engine\/(?:core|clock)|api\/fields)\/|^node:|^(?:commander|croner)$/;
    const ofOperation = /^src\/operations\/\w+\//;
    expect(
      loaded.filter((target) => !pure.test(target) && !ofOperation.test(target)),
      "These commands start fast, because they load descriptions of what they show, and no zod or store.",
      // `waypost apply` alone imports yaml, while it runs.
    ).toEqual(["yaml", "src/api/http/remedies.ts", "src/api/http/sha256.ts"]);
    expect(readFileSync(join(home, "src/client/applyFile.ts"), "utf8")).toContain('await import("yaml")');
  });

  test("of every folder are listed in test/border.ts", () => {
    expect(
      sources.filter((file) => !isPlaced(file)),
      "Add a row for a new folder of src to `order`. Every file is in a folder.",
    ).toEqual([]);
  });

  test("of a command name no other command", () => {
    const folder = "src/engine/core/commands/";
    const commands = inFolder(folder).filter((file) => file !== `${folder}index.ts`);
    const wrong = commands.flatMap((file) =>
      importsOf(file)
        .filter((target) => target.startsWith(folder))
        .map((target) => `${file} imports ${target}`),
    );
    expect(wrong, "A rule that commands share belongs to the folder of its subject.").toEqual([]);
  });

  test("of the table of commands name its folder, and what bulk actions also do", () => {
    const folder = "src/engine/core/commands/";
    const sharedWithBulk = importsOf("src/engine/core/bulk/actions.ts");
    expect(
      importsOf(`${folder}index.ts`).filter(
        (target) => !target.startsWith(folder) && !sharedWithBulk.includes(target),
      ),
      "All commands are in this folder, except those that `bulk` also does.",
    ).toEqual([]);
  });

  test.each([
    ["src", sources],
    ["console/src", consoleSources],
  ])("of %s form no cycle", (_, files) => {
    const circles = files.flatMap((file) => circleFrom(file, files));
    expect(
      circles,
      "Files that import each other can only be understood, tested and moved together.",
    ).toEqual([]);
  });

  test("of the stored part of an operation are decisions, tables and queries", () => {
    const wrong = operationNames.flatMap((name) =>
      filesLoadedBy(`src/operations/${name}/stored.ts`).flatMap((file) =>
        importsOf(file)
          .filter((target) => !isStoredPart(target, name))
          .map((target) => `${file} imports ${target}`),
      ),
    );
    expect(wrong, "The threads of the store load this part, without the server.").toEqual([]);
  });

  test("of the pages of an operation name no other operation", () => {
    const operationOf = (file: string): string | undefined =>
      /^console\/src\/operations\/(\w+)\//.exec(file)?.[1];
    const pages = consoleSources.filter((file) => operationOf(file) !== undefined);
    const wrong = pages.flatMap((file) =>
      importsOf(file)
        .filter((target) => ![undefined, operationOf(file)].includes(operationOf(target)))
        .map((target) => `${file} imports ${target}`),
    );
    expect(operationNames).toEqual(expect.arrayContaining(pages.map(operationOf)));
    expect(wrong, "An operation that no other imports can be dropped, with its pages.").toEqual([]);
  });
});

describe("an operation", () => {
  const lists = ["stored", "served"].map((list) => importsOf(`src/operations/${list}.ts`));
  const commands = importsOf("src/client/commands.ts").concat(importsOf("src/server/cli/main.ts"));

  test.each(operationNames)("%s is in the lists of the programs that use it", (name) => {
    const named = [...lists, commands].some((list) =>
      list.some((target) => target.startsWith(`src/operations/${name}/`)),
    );
    expect(named, "A folder that no list names is dead.").toBe(true);
    for (const [at, list] of ["stored", "served"].entries()) {
      const file = `src/operations/${name}/${list}.ts`;
      if (sources.includes(file)) expect(lists[at]).toContain(file);
    }
  });
});

describe("core is pure", () => {
  const impure: readonly (readonly [name: string, pattern: RegExp])[] = [
    ["reads the clock", /\bDate\.now\b|\bnew Date\(\s*\)|\bDate\(\s*\)|\bperformance\b/],
    ["rolls a die", /\bMath\.random\b|\bcrypto\b/],
    [
      "waits",
      /\bsetTimeout\b|\bsetInterval\b|\bsetImmediate\b|\bqueueMicrotask\b|\basync\b|\bawait\b|\bPromise\b/,
    ],
    ["touches the process", /\bprocess\b|\bglobalThis\b|\bconsole\b|\bfetch\b/],
    ["loads a module by name", /\brequire\(|\bimport\(/],
  ];

  test.each(impure)("nothing in it %s", (_, pattern) => {
    const why =
      "A decision runs again after a conflict, and in the simulation, so it may depend only on its draft " +
      "and its moment.";
    expect(matches(inFolder("src/engine/core/"), pattern), why).toEqual([]);
  });
});

test("no text in core names a command, a flag, a setting or a path of the API", () => {
  const ofProgram = /\bwaypost [a-z]|(?:^|[ "'(])--[a-z]|\bWAYPOST_[A-Z]|\/v\d+\/|\b[A-Z]{3,6} \/|\w=true\b/;
  const named = inFolder("src/engine/core/").flatMap((file) =>
    stringsOf(file).flatMap((one) => (ofProgram.test(one) ? [`${file}: ${one}`] : [])),
  );
  expect(
    named,
    "A refusal has a remedy, which src/api/http/remedies.ts words. Core does not know who calls it, and how.",
  ).toEqual([]);
});

test("only engine/clock/clock.ts reads the clock or sleeps", () => {
  const pattern =
    /\bDate\.now\b|\bnew Date\(\s*\)|\bperformance\.now\b|\bsetTimeout\b|\bsetInterval\b|node:timers/;
  // A wrapper of a connection passes its idle timeout to the connection.
  const mayName = new Set(["src/engine/clock/clock.ts", "src/api/route/pipelining.ts"]);
  const others = sources.filter((file) => !mayName.has(file));
  expect(
    matches(others, pattern),
    "Code that needs the time receives a clock, so that tests and simulations can set it.",
  ).toEqual([]);
});

test("every file that runs on both paths exists", () => {
  for (const pattern of [...againOnFastPath, ...againOnFramework]) {
    const names = /^(.*)\{(.*)\}(.*)$/.exec(pattern);
    const files = names
      ? (names[2] ?? "").split(",").map((name) => `${names[1]}${name}${names[3]}`)
      : [pattern];
    for (const file of files) expect(existsSync(new URL(`../${file}`, import.meta.url)), file).toBe(true);
  }
});

// A test is a list of examples, of which a reader needs one.
test.each([
  ["src", 350],
  ["test", 400],
  ["bench", 400],
  ["scripts", 400],
  ["launch", 400],
] as const)("files of %s have at most %i lines of code", (folder, most) => {
  const long = all.flatMap((file) => {
    const lines = file.startsWith(`${folder}/`) ? countCodeLines(file) : 0;
    return lines > most ? [`${file} has ${lines} lines`] : [];
  });
  expect(long, "Split a longer file by idea, into a file whose name says the idea.").toEqual([]);
});

test.each<readonly [folder: string, most: number]>([
  ["src/engine", 27_100],
  ["src/operations", 12_500],
  // Sources have a file for each signature scheme. An outbox distrusts each answer of its database.
  ...operationNames.map(
    (name) => [`src/operations/${name}`, ["sources", "outbox"].includes(name) ? 2_000 : 1_500] as const,
  ),
])("%s has at most %i lines of code", (folder, most) => {
  const lines = inFolder(`${folder}/`).reduce((sum, file) => sum + countCodeLines(file), 0);
  expect(
    lines,
    "A maintainer of the queue reads all of engine, and an operation is small enough to be dropped. A " +
      "higher number needs a decision record.",
  ).toBeLessThanOrEqual(most);
});

test("lines have at most 110 columns", () => {
  const wide = [...all, ".ci/run"].flatMap((file) =>
    text(file)
      .split("\n")
      .flatMap((line, at) => (line.length > 110 ? [`${file}:${at + 1} has ${line.length} columns`] : [])),
  );
  expect(
    wide,
    "The formatter breaks code. Break a long string with +, build a long pattern from String.raw, and wrap " +
      "comments.",
  ).toEqual([]);
});

test("file names say what a file contains", () => {
  const vague = /^(utils?|helpers?|managers?|types?|common|misc|shared|lib)$/;
  const named = all.filter((file) => vague.test(basename(file).split(".")[0] ?? ""));
  expect(
    named,
    "Such a name fits every file, so a reader cannot guess the content. Use a word of docs/vocabulary.md.",
  ).toEqual([]);
});

test("file names are in camel case", () => {
  const others = all.filter((file) => !/^[a-z][A-Za-z0-9.]*$/.test(basename(file)));
  expect(others, "A file is found by the name of what it contains, which is in camel case.").toEqual([]);
});

test("no two exported types have the same name", () => {
  const definitions = sources.flatMap((file) =>
    [...text(file).matchAll(/^export (?:type|interface|class) (\w+)/gm)].map(([, name = ""]) => ({
      name,
      file,
    })),
  );
  const filesByName = Map.groupBy(definitions, ({ name }) => name);
  const repeated = [...filesByName]
    .filter(([, all]) => all.length > 1)
    .map(([name, all]) => `${name} is in ${all.map(({ file }) => file).join(" and ")}`);
  expect(repeated, "A reader who searches for a type must find one definition.").toEqual([]);
});

test("nothing is cast to any", () => {
  expect(
    matches(all, /\bas\s+any\b|<any\s*>/),
    "`any` switches the type checker off for everything it touches.",
  ).toEqual([]);
});

describe("decision records", () => {
  const index = "README.md";
  const records = readdirSync(join(home, "docs/decisions")).filter(
    (name) => name.endsWith(".md") && name !== index,
  );

  test("are named after a number and a decision", () => {
    const misnamed = records.filter((name) => !/^\d{4}-[a-z0-9]+(-[a-z0-9]+)*\.md$/.test(name));
    expect(misnamed, "The name of a record is NNNN-short-name-of-the-decision.md.").toEqual([]);
  });

  test("have a number each", () => {
    const numbers = records.map((name) => name.slice(0, 4));
    const repeated = numbers.filter((number, at) => numbers.indexOf(number) !== at);
    expect(
      repeated,
      "A number names one record. Numbers of removed records are not used again, so there may be gaps.",
    ).toEqual([]);
  });

  test("are each linked once by their index", () => {
    const links = [...text(`docs/decisions/${index}`).matchAll(/\]\(([^)#]*\.md)[^)]*\)/g)].map(
      ([, link = ""]) => link,
    );
    const sorted = (names: readonly string[]): string[] => names.toSorted((a, b) => (a < b ? -1 : 1));
    expect(sorted(links), "docs/decisions/README.md lists every record under one subject.").toEqual(
      sorted(records),
    );
  });

  test.each(records)("%s has context, decision and consequences on one page", (name) => {
    const lines = text(`docs/decisions/${name}`).split("\n");
    const headings = lines.filter((line) => line.startsWith("#"));
    const title = new RegExp(`^# ${name.slice(0, 4)}: \\S`);
    expect(headings[0], "The title is the decision, after the number of the record.").toMatch(title);
    const sections = ["## Context", "## Decision", "## Consequences"];
    const isMeasured = headings.at(-1) === "## Measured";
    expect(
      headings.slice(1),
      "A reader who wants to change a decision must find its reasons. `## Measured` may follow.",
    ).toEqual(isMeasured ? [...sections, "## Measured"] : sections);
    expect(lines.length, "A record fits on one page.").toBeLessThanOrEqual(70);
  });
});

function filesIn(folder: string): string[] {
  const entries = readdirSync(join(home, folder), { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && /\.(tsx?|js)$/.test(entry.name))
    .map((entry) => relative(home, join(entry.parentPath, entry.name)).split(sep).join("/"))
    .toSorted();
}

/** Counts the lines of a file without imports, comments and blank lines. */
function countCodeLines(file: string): number {
  const code = text(file)
    .replace(/\/\*[^]*?\*\//g, "")
    .replace(/^\s*\/\/.*$/gm, "")
    .replace(/^(?:import|export) [^;]*? from "[^"]*"[^;]*;$/gm, "");
  return code.split("\n").filter((line) => line.trim() !== "").length;
}

function inFolder(prefix: string): string[] {
  return sources.filter((file) => file.startsWith(prefix));
}

function text(file: string): string {
  return readFileSync(join(home, file), "utf8");
}

/**
 * Returns a file of an operation, if it exists, and the files of the operation that it imports, directly or
 * not.
 */
function filesLoadedBy(start: string): string[] {
  const found = sources.includes(start) ? [start] : [];
  for (const file of found)
    for (const target of importsOf(file))
      if (dirname(target).startsWith(dirname(start)) && !found.includes(target)) found.push(target);
  return found;
}

/**
 * Returns the imports of a file: paths from the root of the project, or names of packages and Node.js
 * modules. `what`: whether those of types belong to them.
 */
function importsOf(file: string, what: "all" | "values" = "all"): string[] {
  const statements = [
    what === "all"
      ? /^\s*(?:import|export)\b[^;"']*?\bfrom\s*["']([^"']+)["']/
      : /^\s*(?:import|export)\b(?!\s+type\b)[^;"']*?\bfrom\s*["']([^"']+)["']/,
    /^\s*import\s*["']([^"']+)["']/,
    /\bimport\(\s*["']([^"']+)["']/,
    /new URL\(\s*["']([^"']+\.ts)["']/,
  ];
  const anyStatement = new RegExp(statements.map(({ source }) => source).join("|"), "gm");
  return [...text(file).matchAll(anyStatement)].map((match) => {
    const target = match.slice(1).find((group) => group !== undefined) ?? "";
    return target.startsWith(".") ? join(dirname(file), target).split(sep).join("/") : target;
  });
}

/** Returns the cycle of imports through a file, if the file is the first of the cycle by name. */
function circleFrom(start: string, files: readonly string[]): string[] {
  const trails: string[][] = [[start]];
  const seen = new Set<string>();
  for (const trail of trails) {
    for (const target of importsOf(trail.at(-1) ?? start)) {
      const circle = [[...trail, start].join(" → ")];
      if (target === start) return trail.some((file) => file < start) ? [] : circle;
      if (seen.has(target) || !files.includes(target)) continue;
      seen.add(target);
      trails.push([...trail, target]);
    }
  }
  return [];
}

/** Returns the places of a pattern in the code of files, without comments and strings. */
function matches(files: readonly string[], pattern: RegExp): string[] {
  return files.flatMap((file) =>
    codeOf(file)
      .split("\n")
      .flatMap((line, at) => (pattern.test(line) ? [`${file}:${at + 1}: ${line.trim()}`] : [])),
  );
}

/** Returns the strings and templates of a file, without comments and imports. */
function stringsOf(file: string): string[] {
  const parts = text(file).matchAll(
    /\/\*[^]*?\*\/|(?<!:)\/\/.*|^import [^;]*;|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)/gm,
  );
  return [...parts].flatMap(([, string]) => (string === undefined ? [] : [string]));
}

/**
 * Returns the code of a file, line by line. Strings are emptied, except in imports.
 */
function codeOf(file: string): string {
  const lines = (part: string): string => part.replace(/[^\n]/g, "");
  const texts = /\/\*[\s\S]*?\*\/|(?<!:)\/\/[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'/g;
  return text(file).replace(texts, (part) => (part.startsWith('"node:') ? part : lines(part)));
}
