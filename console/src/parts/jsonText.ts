/** A token of JSON, exactly as it was written. */
export type Token = { kind: "key" | "string" | "number" | "literal" | "mark"; text: string };
/** A line of formatted JSON: how deep it is, and its tokens. */
export type JsonLine = { depth: number; tokens: readonly Token[] };

const lexeme =
  /\s*(?:("(?:[^"\\]|\\.)*")|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null)|([[\]{}:,]))/gy;

/**
 * Formats JSON line by line, or returns null if the text is not JSON. Nothing is computed: numbers, escapes and
 * the order of keys stay as they were sent.
 */
export function formatJson(text: string): JsonLine[] | null {
  if (!isJson(text)) return null;
  const lines: { depth: number; tokens: Token[] }[] = [];
  let line: { depth: number; tokens: Token[] } = { depth: 0, tokens: [] };
  const newLine = (depth: number): void => {
    if (line.tokens.length > 0) lines.push(line);
    line = { depth, tokens: [] };
  };
  const tokens = readTokens(text);
  let depth = 0;
  for (const [at, token] of tokens.entries()) {
    const { text: mark } = token;
    const next = tokens[at + 1]?.text;
    if (token.kind !== "mark") {
      line.tokens.push(next === ":" ? { ...token, kind: "key" } : token);
    } else if (mark === "{" || mark === "[") {
      line.tokens.push(token);
      depth++;
      if (next !== "}" && next !== "]") newLine(depth);
    } else if (mark === "}" || mark === "]") {
      depth--;
      const previous = tokens[at - 1]?.text;
      if (previous !== "{" && previous !== "[") newLine(depth);
      line.tokens.push(token);
    } else {
      line.tokens.push(mark === ":" ? { kind: "mark", text: ": " } : token);
      if (mark === ",") newLine(depth);
    }
  }
  newLine(0);
  return lines;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function readTokens(text: string): Token[] {
  const tokens: Token[] = [];
  lexeme.lastIndex = 0;
  for (let match = lexeme.exec(text); match !== null; match = lexeme.exec(text)) {
    const [, string, number, literal, mark = ""] = match;
    if (string !== undefined) tokens.push({ kind: "string", text: string });
    else if (number !== undefined) tokens.push({ kind: "number", text: number });
    else if (literal !== undefined) tokens.push({ kind: "literal", text: literal });
    else tokens.push({ kind: "mark", text: mark });
  }
  return tokens;
}

/** Returns the address in a JSON string if it is one that may be linked: only http and https. */
export function readLink(token: string): string | null {
  const [, url] = /^"(https?:\/\/[^\s"\\<>]+)"$/.exec(token) ?? [];
  return url !== undefined && URL.canParse(url) ? url : null;
}
