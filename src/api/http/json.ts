import { Refusal } from "../../engine/core/values/errors.ts";
import type { LongWork } from "../../engine/core/node/longWork.ts";
import type { AccountId, Bytes } from "../../engine/core/values/basics.ts";

/**
 * The maximum number of values and names in a JSON text, and the maximum depth of nesting. A short text can
 * take much memory when it is parsed.
 */
const maxParts = 2_000_000;
const maxDepth = 32;

/** Limits of a JSON text: its parts, and the names of fields in all of its objects together. */
type JsonLimits = { parts?: number; names?: number };

/**
 * Returns the JSON value of a body. Throws `Refusal` with the position of a syntax error, or if the text
 * exceeds `max`.
 */
export function readJson(body: Bytes, max: JsonLimits = {}): unknown {
  assertSize(body, max);
  const text = readText(body);
  try {
    return JSON.parse(text);
  } catch {
    throw makeJsonRefusal(body);
  }
}

/**
 * Limits of a JSON object with settings. They allow 10,000 endpoints, more than a URL group may have, and
 * more headers than the 64 KiB of kept headers can contain. A schema takes up to 30 µs to check each part.
 */
const maxOfSettings = { parts: 40_000, names: 20_000 };

/**
 * Returns the JSON value of a body in which every name has a meaning. A schema would silently ignore
 * `__proto__`, so that name is refused. Throws `Refusal`.
 */
export function readSettingsJson(body: Bytes): unknown {
  const value = readJson(body, maxOfSettings);
  const path = findProtoPath(value);
  if (path === null) return value;
  throw new Refusal("invalid", `${path.slice(0, 200)}: unknown field`);
}

function findProtoPath(value: unknown): string | null {
  if (typeof value !== "object" || value === null) return null;
  for (const [name, inner] of Object.entries(value)) {
    const innerPath = name === "__proto__" ? "" : findProtoPath(inner);
    if (innerPath !== null) return innerPath === "" ? name : `${name}.${innerPath}`;
  }
  return null;
}

/**
 * How many characters are searched for the position of an error. Searching 4 MiB takes a third of a second.
 */
const maxSearched = 64 * 1024;

function describeErrorPosition(text: string): string {
  const beginning = text.slice(0, maxSearched);
  const error = findErrorPosition(beginning);
  if (text.length > maxSearched && isCutOff(beginning.slice(error)))
    return `error after the first ${maxSearched} characters`;
  const lines = text.slice(0, error).split("\n");
  return `error in line ${lines.length} at column ${(lines.at(-1)?.length ?? 0) + 1}`;
}

/** Reports whether the rest of a cut text can be the beginning of a token, and is thus not an error. */
const isCutOff = (rest: string): boolean => cutToken.test(rest);

/** The pattern of a JSON text up to its closing quote. */
const openText = String.raw`"(?:[ !#-[\]-\uffff]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*`;
const cutToken = new RegExp(String.raw`^(?:[\w.+-]{0,30}|${openText}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)$`);

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

function assertSize(body: Bytes, max: JsonLimits): void {
  new SizeCheck(body, max).checkUpTo(body.length);
}

/**
 * Counts the parts of a JSON text before the text is parsed. One pass over the bytes is enough, and it can be
 * done in slices.
 */
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

  /**
   * Checks the bytes up to a position, or one byte further. Throws `Refusal` if there are too many parts or
   * names, or the nesting is too deep.
   */
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
        if (++depth > maxDepth)
          throw new Refusal("invalid", `body: JSON that is nested deeper than ${maxDepth} levels`);
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

/**
 * Bytes of a list that are checked or parsed in one slice. Checking takes about 0.3 ms and parsing about 1
 * ms.
 */
const defaultSliceBytes = 64 * 1024;

type JsonListOptions<T> = {
  /** Runs the slices, as work of `owner`. */
  longWork: LongWork;
  owner: AccountId;
  max?: JsonLimits;
  sliceBytes?: number;
  /** Converts the items of one slice. `text` is the list of these items as written. */
  convert(items: unknown[], text: Bytes): T[];
};

/**
 * Reads a JSON list like `readJson`, but in slices. Otherwise a list of 8 MiB would delay all other requests
 * by a tenth of a second. An item that is longer than a slice is read as a whole. Returns null if the body is
 * not a list. Throws `Refusal` like `readJson`.
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

/** Runs a function as a slice of long work. */
const runSlice = (
  run: () => void,
  { longWork, owner }: Pick<JsonListOptions<unknown>, "longWork" | "owner">,
): Promise<void> =>
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

/**
 * Returns the start of a JSON text: after white space (RFC 8259, 2), and after a byte order mark, which the
 * decoder drops as well.
 */
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

const makeJsonRefusal = (body: Bytes): Refusal =>
  new Refusal("invalid", `body: not valid JSON; ${describeErrorPosition(readText(body))}`);

/**
 * Returns the JSON text of one member of the items of a list, by the index of the item. The text is as
 * written, so numbers keep all digits. Only objects and lists are returned. If an item has the member twice,
 * the last one counts, as in a parser. `body` must be valid JSON.
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
    } else if (byte === colon && depth === 2)
      isMember = JSON.parse(decoder.decode(body.subarray(textAt, textEnd))) === name;
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

const numberPattern = String.raw`-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?`;

/** One token of JSON, or a separator. It is sticky, so it must begin where the previous one ended. */
const token = new RegExp(
  String.raw`[ \t\n\r]*(?:(${openText}"|${numberPattern}|true|false|null)|([[\]{},:]))`,
  "y",
);

/** Returns the position where a string stops being JSON: the first token that is not allowed there. */
function findErrorPosition(text: string): number {
  const open: string[] = [];
  let expected = "value";
  for (let at = 0; ;) {
    token.lastIndex = at;
    const match = token.exec(text);
    const start = match
      ? token.lastIndex - (match[1] ?? match[2] ?? "").length
      : at + (/^\s*/.exec(text.slice(at, at + 1_000))?.[0].length ?? 0);
    if (!match) return start;
    const next = findExpected(expected, match[2] ?? (match[1]?.startsWith('"') ? "text" : "other"), open);
    if (next === null) return start;
    expected = next;
    at = token.lastIndex;
  }
}

/**
 * Returns what may follow a token, or null if the token is not allowed here. `open` lists the open brackets.
 */
function findExpected(expected: string, found: string, open: string[]): string | null {
  const afterValue = (): string => (open.length === 0 ? "nothing" : "comma or end");
  const inner = open.at(-1);
  if (expected.startsWith("value")) {
    if (found === "text" || found === "other") return afterValue();
    if (found === "[" || found === "{") {
      open.push(found);
      return found === "[" ? "value or end" : "name or end";
    }
  }
  if (expected.startsWith("name") && found === "text") return "colon";
  if (expected === "colon" && found === ":") return "value";
  if (expected === "comma or end" && found === ",") return inner === "[" ? "value" : "name";
  if (expected.endsWith("or end") && found === (inner === "[" ? "]" : "}")) {
    open.pop();
    return afterValue();
  }
  return null;
}
