/** The head of a request that holds nothing unusual. `headBytes`: where its body begins; `length`: how long that is. */
export type PlainHead = {
  method: string;
  target: string;
  /** Names and values by turns, as they were sent. */
  rawHeaders: string[];
  authorization: string | undefined;
  headBytes: number;
  length: number;
  /** Whether the connection shall be kept. */
  keepsAlive: boolean;
};

/**
 * The head of a POST or a DELETE that begins these bytes. Null where it has not come whole, or where anything in it could be understood in more than
 * one way, or asks for more than an answer: such a request is for a full parser of HTTP. What is read here is what RFC 9112 reads there.
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
  return { method, target, rawHeaders, authorization, headBytes: end + 4, length: Number(length), keepsAlive };
}

/** Control characters other than those that end lines, and ends of lines by halves. */
const malformedLines = /[^\t\r\n\x20-\x7e\x80-\xff]|\r(?!\n)|[^\r]\n/;
const requestLine = /^(POST|DELETE) (\/[\x21-\x7e]*) HTTP\/1\.1$/;

type Special = { "content-length"?: string; connection?: string; authorization?: string };

/** Fields that say how the request is to be read, or what else is wanted. Each that is read here may be there once. */
const readNames: ReadonlySet<string> = new Set(["content-length", "connection", "authorization"]);
const unsupportedNames: ReadonlySet<string> = new Set(["transfer-encoding", "expect", "upgrade", "proxy-connection", "trailer", "te"]);
/** Most other names are told from these by their length alone. */
const knownLengths: ReadonlySet<number> = new Set([...readNames, ...unsupportedNames].map(({ length }) => length));

/** False: the line is no field, or one that is not plain. */
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

/** Without the blanks around it. */
function trimValue(line: string, from: number): string {
  let start = from;
  let end = line.length;
  while (start < end && isBlank(line.charCodeAt(start))) start++;
  while (end > start && isBlank(line.charCodeAt(end - 1))) end--;
  return line.slice(start, end);
}

const isBlank = (code: number): boolean => code === 32 || code === 9;
