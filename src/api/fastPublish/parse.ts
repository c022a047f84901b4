/**
 * The head of a request without anything unusual. `headBytes`: where its body begins. `length`: the length of
 * the body in bytes.
 */
export type PlainHead = {
  method: string;
  target: string;
  /** Names and values in turn, as sent. */
  rawHeaders: string[];
  authorization: string | undefined;
  headBytes: number;
  length: number;
  /** Whether the connection stays open. */
  keepsAlive: boolean;
};

/**
 * Returns the head of a POST or a DELETE at the beginning of these bytes. Returns null if the head is
 * incomplete, is ambiguous, or asks for another protocol or a `100 Continue`. A full HTTP parser must read
 * such a request. Returned heads are read exactly as RFC 9112 requires.
 */
export function parsePlainHead(bytes: Buffer): PlainHead | null {
  const end = bytes.indexOf("\r\n\r\n");
  if (end < 0) return null;
  const text = bytes.toString("latin1", 0, end);
  if (malformedLines.test(text)) return null;
  const lines = text.split("\r\n");
  const [, method, target] = requestLine.exec(lines[0] ?? "") ?? [];
  if (method === undefined || target === undefined) return null;
  const rawHeaders: string[] = [];
  const special: Special = {};
  for (let at = 1; at < lines.length; at++) if (!readField(lines[at] ?? "", rawHeaders, special)) return null;
  const { "content-length": length = "", connection = "keep-alive", authorization } = special;
  if (!/^\d{1,9}$/.test(length)) return null;
  const keepsAlive = /^keep-alive$/i.test(connection);
  if (!keepsAlive && !/^close$/i.test(connection)) return null;
  return {
    method,
    target,
    rawHeaders,
    authorization,
    headBytes: end + 4,
    length: Number(length),
    keepsAlive,
  };
}

/** Control characters other than those that end lines, and incomplete line ends. */
const malformedLines = /[^\t\r\n\x20-\x7e\x80-\xff]|\r(?!\n)|[^\r]\n/;
const requestLine = /^(POST|DELETE) (\/[\x21-\x7e]*) HTTP\/1\.1$/;

type Special = { "content-length"?: string; connection?: string; authorization?: string };

/**
 * `readNames`: fields that this parser reads, at most once each. `unsupportedNames`: fields that need a full
 * parser.
 */
const readNames: ReadonlySet<string> = new Set(["content-length", "connection", "authorization"]);
const unsupportedNames: ReadonlySet<string> = new Set([
  "transfer-encoding",
  "expect",
  "upgrade",
  "proxy-connection",
  "trailer",
  "te",
]);
/** The lengths of these names. Most other names have another length. */
const knownLengths: ReadonlySet<number> = new Set(
  [...readNames, ...unsupportedNames].map(({ length }) => length),
);

/** Reads a header line. Returns false if the line is not a field or not a plain one. */
function readField(line: string, rawHeaders: string[], special: Special): boolean {
  const colon = line.indexOf(":");
  if (colon < 1) return false;
  const name = line.slice(0, colon);
  const value = trimValue(line, colon + 1);
  if (invalidNameCharacter.test(name)) return false;
  if (knownLengths.has(colon)) {
    const known = name.toLowerCase();
    if (unsupportedNames.has(known)) return false;
    if (isReadName(known)) {
      if (special[known] !== undefined) return false;
      special[known] = value;
    }
  }
  rawHeaders.push(name, value);
  return true;
}

const isReadName = (name: string): name is keyof Special => readNames.has(name);

const invalidNameCharacter = /[^!#$%&'*+\-.^_`|~0-9A-Za-z]/;

/** Returns the value in a line without the blanks around it. */
function trimValue(line: string, from: number): string {
  let start = from;
  let end = line.length;
  while (start < end && isBlank(line.charCodeAt(start))) start++;
  while (end > start && isBlank(line.charCodeAt(end - 1))) end--;
  return line.slice(start, end);
}

const isBlank = (code: number): boolean => code === 32 || code === 9;
