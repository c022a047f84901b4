import { readFileSync } from "node:fs";
import { findNearest } from "../engine/core/values/nearest.ts";
import { CommandFailed } from "./terminal/commandFailed.ts";
import { toSafeLine } from "./terminal/safeText.ts";

/**
 * A value of the file, with the line where it is and its path, such as `queues.orders`. A `word` has no
 * quotes, and is a number, true, false or null in YAML.
 */
export type Given = { line: number; path: string } & (
  | { kind: "text"; text: string }
  | { kind: "word"; text: string; value: number | boolean | null }
  | { kind: "list"; items: readonly Given[] }
  | { kind: "map"; entries: ReadonlyMap<string, Given> }
);

/** Thrown for a value that is wrong. The problem has the line and the path in front of it. */
export class WrongValue extends Error {
  constructor({ line, path }: Pick<Given, "line" | "path">, problem: string) {
    super(`line ${line}: ${path === "" ? "" : `${toSafeLine(path)}: `}${problem}`);
  }
}

/** The largest file that is read, in bytes. */
const maxBytes = 4 * 1024 * 1024;
/** How deep values may be nested. */
const maxDepth = 12;

/** Reads a YAML or JSON file; "-" is the input. Throws `CommandFailed` if it cannot be read as YAML. */
export async function readApplyFile(file: string): Promise<Given> {
  const bytes = readOrFail(file);
  if (bytes.length > maxBytes)
    throw new CommandFailed("usage", `${toSafeLine(file)}: exceeds ${maxBytes} bytes; split the file`);
  try {
    return await parseYaml(bytes.toString());
  } catch (error) {
    if (!(error instanceof WrongValue || error instanceof RangeError)) throw error;
    throw new CommandFailed("usage", `${toSafeLine(file)}: ${error.message}`);
  }
}

function readOrFail(file: string): Buffer {
  try {
    return readFileSync(file === "-" ? 0 : file);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new CommandFailed("usage", `${toSafeLine(file)}: cannot be read (${toSafeLine(reason)})`);
  }
}

/** Parses YAML, of which JSON is a part. Throws `WrongValue` for what this file may not have. */
async function parseYaml(text: string): Promise<Given> {
  // Only this command needs the parser.
  const { LineCounter, isMap, isScalar, isSeq, parseAllDocuments } = await import("yaml");
  const lines = new LineCounter();
  const lineAt = (offset: number): number => lines.linePos(offset).line;
  const options = {
    ...({ lineCounter: lines, prettyErrors: false, stringKeys: true, logLevel: "silent" } as const),
    // The parser compares each key with all others. The walk below finds keys that are given twice.
    uniqueKeys: false,
  };
  const parsed = parseAllDocuments(text, options);
  const documents = Array.isArray(parsed) ? parsed : [];
  const [document] = documents;
  const [problem] = documents.flatMap(({ errors, warnings }) => [...errors, ...warnings]);
  if (problem) throw new WrongValue({ line: lineAt(problem.pos[0]), path: "" }, toSafeLine(problem.message));
  if (!document || documents.length > 1)
    throw new WrongValue({ line: 1, path: "" }, "must have one YAML document");
  const toGiven = (node: unknown, path: string, outer: { line: number; depth: number }): Given => {
    const line = hasRange(node) ? lineAt(node.range[0]) : outer.line;
    const place = { line, path };
    const depth = outer.depth + 1;
    if (depth > maxDepth) throw new WrongValue(place, `is nested more than ${maxDepth} levels deep`);
    if (isSeq(node)) {
      const items = node.items.map((item, at) => toGiven(item, `${path}.${at}`, { line, depth }));
      return { ...place, kind: "list", items };
    }
    if (isMap(node)) {
      const entries = new Map<string, Given>();
      for (const { key, value } of node.items) {
        const name = isScalar(key) ? String(key.value) : String(key);
        const keyLine = hasRange(key) ? lineAt(key.range[0]) : line;
        const keyPath = path === "" ? name : `${path}.${name}`;
        if (entries.has(name))
          throw new WrongValue({ line: keyLine, path: keyPath }, "is given twice; remove one of them");
        entries.set(name, { ...toGiven(value, keyPath, { line: keyLine, depth }), line: keyLine });
      }
      return { ...place, kind: "map", entries };
    }
    if (node === null || !isScalar(node)) {
      if (node === null) return { ...place, kind: "word", text: "", value: null };
      throw new WrongValue(place, "aliases (*name) are not supported; write the value again");
    }
    const { value, source } = node;
    if (value === null || typeof value === "number" || typeof value === "boolean")
      return { ...place, kind: "word", text: source ?? String(value), value };
    return { ...place, kind: "text", text: typeof value === "string" ? value : (source ?? "") };
  };
  return toGiven(document.contents, "", { line: 1, depth: 0 });
}

type Ranged = { range: readonly number[] & { 0: number } };

const hasRange = (node: unknown): node is Ranged =>
  typeof node === "object" && node !== null && Array.isArray(Reflect.get(node, "range"));

/** Reads a value of the file. Throws `WrongValue` if the value is wrong. */
export type Reader<T> = (given: Given) => T;

type Row = Readonly<Record<string, Reader<unknown>>>;
type Fields<R extends Row> = { [N in keyof R]?: ReturnType<R[N]> };

/** Collects the problems of a file, so that one run reports all of them. */
export class Problems {
  readonly all: string[] = [];

  /** Runs a function. Keeps a `WrongValue` that it throws, and returns undefined then. */
  collect<T>(run: () => T): T | undefined {
    try {
      return run();
    } catch (error) {
      if (!(error instanceof WrongValue)) throw error;
      this.all.push(error.message);
      return undefined;
    }
  }

  /**
   * Reads a map with the given fields. An unknown key, a wrong value and a missing field are problems. The
   * result lacks a field that has a problem.
   */
  readFields<R extends Row>(given: Given, row: R, required: readonly (keyof R & string)[] = []): Fields<R> {
    const names = Object.keys(row);
    const fields: Record<string, unknown> = {};
    for (const [name, value] of this.collect(() => readEntries(given)) ?? []) {
      const read = Object.hasOwn(row, name) ? row[name] : undefined;
      const result = this.collect(() => (read ?? refuseKey(name, names))(value));
      if (result !== undefined) fields[name] = result;
    }
    const missing = given.kind === "map" ? required.filter((name) => !given.entries.has(name)) : [];
    for (const name of missing) this.all.push(new WrongValue(given, `requires ${name}; add it`).message);
    return fields as Fields<R>;
  }
}

const refuseKey =
  (name: string, known: readonly string[]): Reader<never> =>
  (given) => {
    const nearest = findNearest(name, known);
    throw new WrongValue(
      given,
      nearest === null ? `unknown key; use ${known.join(", ")}` : `unknown key; did you mean ${nearest}?`,
    );
  };

/** Returns the entries of a map. An empty value is an empty map. */
export function readEntries(given: Given): readonly (readonly [string, Given])[] {
  if (given.kind === "map") return [...given.entries];
  if (given.kind === "word" && given.value === null) return [];
  throw new WrongValue(given, "must have keys with values");
}

/** Reads a string. Numbers, true and false are read as they are written. */
export const readText: Reader<string> = (given) => {
  if (given.kind === "text" || (given.kind === "word" && given.value !== null)) return given.text;
  throw new WrongValue(given, "is not a string");
};

/** Reads true or false. */
export const readFlag: Reader<boolean> = (given) => {
  if (given.kind === "word" && typeof given.value === "boolean") return given.value;
  throw new WrongValue(given, "is neither true nor false");
};

/** Reads a whole number of at least 1. */
export const readCount: Reader<number> = (given) => {
  if (given.kind === "word" && Number.isSafeInteger(given.value) && Number(given.value) >= 1)
    return Number(given.value);
  throw new WrongValue(given, "is not a whole number of at least 1");
};

/** Reads a list of at least one value. */
export const readList =
  <T>(readItem: Reader<T>): Reader<T[]> =>
  (given) => {
    if (given.kind !== "list") throw new WrongValue(given, "is not a list");
    return given.items.map(readItem);
  };

/** Reads null, or what another reader reads. */
export const orNull =
  <T>(read: Reader<T>): Reader<T | null> =>
  (given) =>
    given.kind === "word" && given.value === null ? null : read(given);
