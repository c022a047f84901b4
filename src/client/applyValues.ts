import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import type { Given, Reader } from "./applyFile.ts";
import { WrongValue, readText } from "./applyFile.ts";
import { toSafeLine } from "./terminal/safeText.ts";

/** A string of the file. A secret comes from a variable or another file, and is never printed. */
export type GivenValue = { text: string; isSecret: boolean };
/** The bytes of a body. */
export type BodyValue = { bytes: Buffer; isSecret: boolean };

/** Where texts come from: the variables of the program, and the folder to which paths are relative. */
export type Origin = { environment: NodeJS.ProcessEnv; folder: string };

/** The largest file that a value is read from, in bytes. */
const maxBytes = 64 * 1024 * 1024;

/** Reports whether a value names where its text is: `{env: NAME}` or `{file: path}`. */
export function isReference(given: Given): boolean {
  if (given.kind !== "map") return false;
  const [name, ...others] = given.entries.keys();
  return others.length === 0 && (name === "env" || name === "file");
}

/**
 * Returns a reader of texts. `{env: NAME}` is the text of a variable, and `{file: path}` that of a file,
 * without the line break at its end.
 */
export const valueReader =
  (origin: Origin): Reader<GivenValue> =>
  (given) => {
    if (!isReference(given)) return { text: readText(given), isSecret: false };
    const text = readReference(given, origin).toString();
    return { text: text.replace(/\r?\n$/, ""), isSecret: true };
  };

/** Returns a reader of bodies. A body from a file has the bytes of the file. */
export const bodyReader =
  (origin: Origin): Reader<BodyValue> =>
  (given) =>
    isReference(given)
      ? { bytes: readReference(given, origin), isSecret: true }
      : { bytes: Buffer.from(readText(given)), isSecret: false };

function readReference(given: Given, { environment, folder }: Origin): Buffer {
  const [[kind, source] = []] = given.kind === "map" ? [...given.entries] : [];
  if (source === undefined) throw new WrongValue(given, "is not a string");
  const name = readText(source);
  if (kind === "env") {
    const text = environment[name];
    if (text !== undefined && text !== "") return Buffer.from(text);
    throw new WrongValue(source, `the variable ${toSafeLine(name)} is not set; set it and apply again`);
  }
  try {
    const bytes = readFileSync(resolve(folder, name));
    if (bytes.length <= maxBytes) return bytes;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new WrongValue(source, `cannot be read (${toSafeLine(reason)})`);
  }
  throw new WrongValue(source, `exceeds ${maxBytes} bytes`);
}

/** Returns a reader of JSON, in which each text may be a reference. */
export const jsonReader =
  (origin: Origin): Reader<unknown> =>
  (given) => {
    if (given.kind === "word") return given.value;
    if (given.kind === "list") return given.items.map(jsonReader(origin));
    if (given.kind === "text" || isReference(given)) return valueReader(origin)(given).text;
    return Object.fromEntries([...given.entries].map(([name, value]) => [name, jsonReader(origin)(value)]));
  };
