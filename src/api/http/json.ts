import { Refusal } from "../../core/values/errors.ts";
import type { LongWork } from "../../core/fairness/longWork.ts";
import type { AccountId, Bytes } from "../../core/model/message.ts";

/** Values and names a JSON may have, and how deep they may be nested. Small texts can stand for very much memory. */
const maxParts = 2_000_000;
const maxDepth = 32;

/** Limits of a JSON text: its parts, and the names of fields in all of its objects together. */
type JsonLimits = { parts?: number; names?: number };

/** Reads the JSON of a body. Throws `Refusal` with the place where it is wrong, or if it has more than `most`. */
export function readJson(body: Bytes, max: JsonLimits = {}): unknown {
  checkSize(body, max);
  const text = readText(body);
  try {
    return JSON.parse(text);
  } catch {
    throw makeJsonRefusal(body);
  }
}

/**
 * Limits of a JSON object with settings. They leave room for 10,000 endpoints, more than a URL group may have. Kept headers have at most 64 KiB
 * together, so there are fewer of them. The check by a schema takes up to 30 µs for each part.
 */
const maxOfSettings = { parts: 40_000, names: 20_000 };

/**
 * Reads the JSON of a body in which every name means something: a schema passes over `__proto__` without a word. Throws
 * `Refusal`.
 */
export function readSettingsJson(body: Bytes): unknown {
  const value = readJson(body, maxOfSettings);
  const path = findProtoPath(value);
  if (path === null) return value;
  throw new Refusal("invalid", `${path.slice(0, 200)}: there is no such field`);
}

function findProtoPath(value: unknown): string | null {
  if (typeof value !== "object" || value === null) return null;
  for (const [name, inner] of Object.entries(value)) {
    const innerPath = name === "__proto__" ? "" : findProtoPath(inner);
    if (innerPath !== null) return innerPath === "" ? name : `${name}.${innerPath}`;
  }
  return null;
}

/** Characters of a text in which the place of an error is looked for. To look through 4 MiB takes a third of a second. */
const maxSearched = 64 * 1024;

function describeErrorPosition(text: string): string {
  const beginning = text.slice(0, maxSearched);
  const error = findErrorPosition(beginning);
  if (text.length > maxSearched && isCutOff(beginning.slice(error))) return `it goes wrong after the first ${maxSearched} characters`;
  const lines = text.slice(0, error).split("\n");
  return `it goes wrong in line ${lines.length} at column ${(lines.at(-1)?.length ?? 0) + 1}`;
}

/** Reports whether the rest of a cut text can be the beginning of a token, so that it is not an error. */
const isCutOff = (rest: string): boolean =>
  /^(?:[\w.+-]{0,30}|"(?:[ !#-[\]-\uffff]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*(?:\\(?:u[0-9a-fA-F]{0,3})?)?)$/.test(rest);

const decoder = new TextDecoder("utf-8", { fatal: true });

function readText(body: Bytes): string {
  try {
    return decoder.decode(body);
  } catch {
    throw new Refusal("invalid", "body: not UTF-8, so not JSON");
  }
}

const quote = 0x22;
const backslash = 0x5c;
const comma = 0x2c;
const colon = 0x3a;
const squareOpen = 0x5b;
const squareClose = 0x5d;
const curlyOpen = 0x7b;
const curlyClose = 0x7d;

function checkSize(body: Bytes, max: JsonLimits): void {
  new SizeCheck(body, max).checkUpTo(body.length);
}

/** Counts the parts of a JSON text before anything is made of it, in one pass over the bytes, which may go in slices. */
class SizeCheck {
  readonly #body: Bytes;
  readonly #max: Required<JsonLimits>;
  at = 0;
  /** The last comma between the items of the outermost list, before `at`. */
  lastComma = -1;
  #depth = 0;
  #parts = 0;
  #names = 0;
  #isInText = false;

  constructor(body: Bytes, { parts = maxParts, names = parts }: JsonLimits) {
    this.#body = body;
    this.#max = { parts, names };
  }

  /** Looks at the bytes up to a place, or a byte more. Throws `Refusal` if there are more parts than there may be. */
  checkUpTo(to: number): void {
    const body = this.#body;
    let at = this.at;
    let depth = this.#depth;
    let parts = this.#parts;
    let names = this.#names;
    let inText = this.#isInText;
    const { parts: partLimit, names: nameLimit } = this.#max;
    for (; at < to; at++) {
      const byte = body[at];
      if (inText) {
        if (byte === backslash) at++;
        else if (byte === quote) inText = false;
      } else if (byte === quote) inText = true;
      else if (byte === comma) {
        parts++;
        if (depth === 1) this.lastComma = at;
      } else if (byte === colon) names++;
      else if (byte === squareOpen || byte === curlyOpen) {
        parts++;
        if (++depth > maxDepth) throw new Refusal("invalid", `body: JSON that is nested deeper than ${maxDepth} levels`);
      } else if (byte === squareClose || byte === curlyClose) depth--;
      if (parts > partLimit) throw new Refusal("invalid", `body: JSON with more than ${partLimit} parts`);
      if (names > nameLimit) throw new Refusal("invalid", `body: JSON with more than ${nameLimit} names`);
    }
    this.at = at;
    this.#depth = depth;
    this.#parts = parts;
    this.#names = names;
    this.#isInText = inText;
  }
}

/** Bytes of a list that are looked at, or parsed, in one slice: some 0.3 and 1 ms. */
const defaultSliceBytes = 64 * 1024;

type JsonListOptions<T> = {
  /** Runs the slices, as work of `owner`. */
  longWork: LongWork;
  owner: AccountId;
  max?: JsonLimits;
  sliceBytes?: number;
  /** Makes something of some of the items. `text`: the list of these items as it was written. */
  convert(items: unknown[], text: Bytes): T[];
};

/**
 * Reads a JSON list as `readJson` does, but in slices, so that a list of 8 MiB holds up nobody else for a tenth of a second. Only an item that
 * is long by itself is read in one go. Returns null if the body is no list. Throws `Refusal` as `readJson` does.
 */
export async function readJsonList<T>(body: Bytes, options: JsonListOptions<T>): Promise<T[] | null> {
  const { max = {}, sliceBytes = defaultSliceBytes, convert } = options;
  const start = findStart(body);
  if (body[start] !== squareOpen) return null;
  const check = new SizeCheck(body, max);
  const results: T[] = [];
  const slice = (run: () => void): Promise<void> => runSlice(run, options);
  let from = start + 1;
  const read = (text: Bytes, isAll: boolean): void => {
    const items = parseList(text, body);
    if (items.length === 0 && !isAll) throw makeJsonRefusal(body);
    results.push(...convert(items, text));
  };
  while (check.at < body.length) {
    await slice(() => check.checkUpTo(Math.min(check.at + sliceBytes, body.length)));
    const to = check.lastComma;
    if (to < from || check.at >= body.length) continue;
    const part = body.subarray(from, to);
    await slice(() => read(Buffer.concat([listOpens, part, listCloses]), false));
    from = to + 1;
  }
  await slice(() => read(Buffer.concat([listOpens, body.subarray(from)]), from === start + 1));
  return results;
}

/** Runs something as a slice of long work. */
const runSlice = (run: () => void, { longWork, owner }: Pick<JsonListOptions<unknown>, "longWork" | "owner">): Promise<void> =>
  new Promise((resolve, reject) =>
    longWork.next(owner, () => {
      try {
        resolve(run());
      } catch (error) {
        reject(error instanceof Error ? error : new Error(String(error)));
      }
    }),
  );

const listOpens = Buffer.from("[");
const listCloses = Buffer.from("]");

/** Returns where a JSON text begins: behind white space (RFC 8259, 2), and behind a byte order mark, which the decoder drops as well. */
function findStart(body: Bytes): number {
  let at = body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf ? 3 : 0;
  while (body[at] === 0x20 || body[at] === 0x0a || body[at] === 0x0d || body[at] === 0x09) at++;
  return at;
}

function parseList(text: Bytes, body: Bytes): unknown[] {
  try {
    const list: unknown = JSON.parse(readText(text));
    if (Array.isArray(list)) return list;
  } catch (error) {
    if (error instanceof Refusal) throw error;
  }
  throw makeJsonRefusal(body);
}

const makeJsonRefusal = (body: Bytes): Refusal => new Refusal("invalid", `body: not valid JSON; ${describeErrorPosition(readText(body))}`);

/**
 * Returns the JSON text of a member of the items of a list, by the place of the item, as it was written: numbers keep all of their digits. Only
 * objects and lists are returned. If an item has the member twice, the last one counts, as it does for a parser. `body` must be valid JSON.
 */
export function readMemberTexts(body: Bytes, name: string): ReadonlyMap<number, string> {
  const texts = new Map<number, string>();
  let depth = 0;
  let item = 0;
  let inText = false;
  let textAt = 0;
  let textEnd = 0;
  let isMember = false;
  let from = -1;
  for (let at = 0; at < body.length; at++) {
    const byte = body[at];
    if (inText) {
      if (byte === backslash) at++;
      else if (byte === quote) {
        inText = false;
        textEnd = at + 1;
      }
    } else if (byte === quote) {
      inText = true;
      textAt = at;
    } else if (byte === colon && depth === 2) isMember = JSON.parse(decoder.decode(body.subarray(textAt, textEnd))) === name;
    else if (byte === comma && depth === 2) isMember = false;
    else if (byte === comma && depth === 1) item++;
    else if (byte === squareOpen || byte === curlyOpen) {
      if (depth++ === 2 && isMember) from = at;
    } else if (byte === squareClose || byte === curlyClose) {
      if (--depth === 2 && from >= 0) texts.set(item, decoder.decode(body.subarray(from, at + 1)));
      if (depth === 2) from = -1;
      if (depth === 1) isMember = false;
    }
  }
  return texts;
}

/** One token of JSON, or a separator. Sticky: it must begin where the last one ended. */
const token =
  /[ \t\n\r]*(?:("(?:[ !#-[\]-\uffff]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)|([[\]{},:]))/y;

/** Where a text stops to be JSON: the first token that cannot stand there. */
function findErrorPosition(text: string): number {
  const open: string[] = [];
  let wanted = "value";
  for (let at = 0; ;) {
    token.lastIndex = at;
    const match = token.exec(text);
    const start = match
      ? token.lastIndex - (match[1] ?? match[2] ?? "").length
      : at + (/^\s*/.exec(text.slice(at, at + 1_000))?.[0].length ?? 0);
    if (!match) return start;
    const next = findExpected(wanted, match[2] ?? (match[1]?.startsWith('"') ? "text" : "other"), open);
    if (next === null) return start;
    wanted = next;
    at = token.lastIndex;
  }
}

/** What may stand after a token, or null when it cannot stand here. `open` are the brackets around it. */
function findExpected(wanted: string, found: string, open: string[]): string | null {
  const afterValue = (): string => (open.length === 0 ? "nothing" : "comma or end");
  const inner = open.at(-1);
  if (wanted.startsWith("value")) {
    if (found === "text" || found === "other") return afterValue();
    if (found === "[" || found === "{") {
      open.push(found);
      return found === "[" ? "value or end" : "name or end";
    }
  }
  if (wanted.startsWith("name") && found === "text") return "colon";
  if (wanted === "colon" && found === ":") return "value";
  if (wanted === "comma or end" && found === ",") return inner === "[" ? "value" : "name";
  if (wanted.endsWith("or end") && found === (inner === "[" ? "]" : "}")) {
    open.pop();
    return afterValue();
  }
  return null;
}
