/**
 * Finds sentences that are not in plain technical English, as docs/style.md describes it. It checks Markdown,
 * the comments, strings and JSX of TypeScript and JavaScript, and the comments of SQL and of `.ci/run`.
 * Inline code, code blocks and template placeholders are skipped, and so is Markdown between `<!--
 * plain-english: off -->` and `<!-- plain-english: on -->`.
 *
 *   npm run english               check everything that git knows
 *   npm run english -- <path> …   check these files and folders
 *
 * Prints one line per hit, `file:line: [pattern] text -> advice`, and exits with code 1 if there is one.
 */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { extname } from "node:path";
import { parseSync } from "oxc-parser";
import type { Pattern } from "./plainEnglishPatterns.ts";
import { patterns } from "./plainEnglishPatterns.ts";

/** A passage of prose: its text, and the line of the file that each character is on. */
export type Passage = { text: string; lines: number[] };

/** The script of the checks, which has no extension. */
const script = ".ci/run";

/** Hits that are correct English: the file, the pattern, and a part of the text. */
const allowed: readonly (readonly [file: string, pattern: string, part: string])[] = [
  ["src/api/fastPublish/answer.ts", "answers", "Answers"],
  ["src/api/fastPublish/fastPath.ts", "answers", "Answers"],
  ["src/operations/sources/schemes/handshake.ts", "answers", "Answers"],
  ["src/operations/sources/schemes/verificationResult.ts", "answers", "Answers"],
  ["src/api/settings/workflow.ts", "retired", "letters, digits"],
  ["src/api/settings/table.ts", "retired", "letters, digits"],
  ["src/engine/core/sending/scheduleChecks.ts", "retired", "letters, digits"],
  ["docs/reference/settings.md", "retired", "letters, digits"],
  ["test/plainEnglish.test.ts", "under-way", "under way"],
  ["test/plainEnglish.test.ts", "holds-for", "The limit"],
  ["test/plainEnglish.test.ts", "most-noun", "of a page"],
  ["test/plainEnglish.test.ts", "inverted", "the newest"],
  ["test/plainEnglish.test.ts", "a-text", "in upper case"],
  ["test/plainEnglish.test.ts", "late-clause", "no node sends"],
  ["test/plainEnglish.test.ts", "seal", "the secrets"],
  ["scripts/plainEnglishPatterns.ts", "of-own", "'its own X' instead of"],
  ["scripts/plainEnglishPatterns.ts", "could-apply", "with no such"],
];

/** A hit of one pattern. */
export type Hit = { file: string; line: number; pattern: string; context: string; advice: string };

/** Returns the hits of all patterns in the text of a file. The extension of `file` decides how it is read. */
export function findHits(file: string, text: string): Hit[] {
  const passages = readProse(file, text);
  return passages.flatMap((passage) =>
    patternsOf(file).flatMap(({ name, pattern, advice }) =>
      [...passage.text.matchAll(pattern)].flatMap(({ index, 0: found }) => {
        const context = passage.text
          .slice(Math.max(0, index - 30), index + Math.min(found.length, 50) + 40)
          .replace(/\s+/g, " ");
        const isAllowed = allowed.some(
          ([at, which, part]) => at === file && which === name && context.includes(part),
        );
        return isAllowed ? [] : [{ file, line: passage.lines[index] ?? 0, pattern: name, context, advice }];
      }),
    ),
  );
}

const patternsOf = (file: string): readonly Pattern[] =>
  patterns.filter(({ files }) => !files || files.test(file));

/** Returns the passages of a file. */
function readProse(file: string, text: string): Passage[] {
  if (extname(file) === ".md") return readMarkdown(text);
  if (extname(file) === ".sql") return readLineComments(text, /^\s*--\s?(.*)/);
  return file === script ? readLineComments(text, /^\s*#(?!!)\s?(.*)/) : readCode(file, text);
}

/** Joins lines of prose into one passage. */
function makePassage(pieces: readonly (readonly [text: string, line: number])[]): Passage[] {
  const passage: Passage = { text: "", lines: [] };
  for (const [piece, line] of pieces) {
    const joined = passage.text === "" ? piece : ` ${piece}`;
    passage.text += joined;
    for (let at = 0; at < joined.length; at++) passage.lines.push(line);
  }
  return /[a-z]/i.test(passage.text) ? [passage] : [];
}

/** Returns the paragraphs, headings, table rows and list items outside code blocks and excluded parts. */
function readMarkdown(text: string): Passage[] {
  const passages: Passage[] = [];
  let pieces: [string, number][] = [];
  let isCode = false;
  let isOff = false;
  const flush = (): void => {
    passages.push(...makePassage(pieces));
    pieces = [];
  };
  for (const [index, line] of text.split("\n").entries()) {
    const isFence = /^\s*```/.test(line);
    const marker = /<!--\s*plain-english:\s*(on|off)/.exec(line);
    if (isFence) isCode = !isCode;
    if (marker) isOff = marker[1] === "off";
    if (isFence || marker || isCode || isOff || /^\s*$/.test(line)) {
      flush();
      continue;
    }
    if (/^\s*(?:[*-]|\d+\.|\||#|>) ?/.test(line)) flush();
    pieces.push([withoutCode(line.replace(/^\s*(?:#+|>|\d+\.|[*-])\s+/, "").trim()), index + 1]);
    if (/^\s*[|#]/.test(line)) flush();
  }
  flush();
  return passages;
}

/** Returns the comments that fill their lines. A list item starts a passage, and so does an empty line. */
function readLineComments(text: string, comment: RegExp): Passage[] {
  const passages: Passage[] = [];
  const pieces: [string, number][] = [];
  for (const [index, line] of text.split("\n").entries()) {
    const content = comment.exec(line)?.[1] ?? "";
    if (content === "" || /^\s*(?:- |\w+ {2,})/.test(content))
      passages.push(...makePassage(pieces.splice(0)));
    if (content !== "") pieces.push([withoutCode(content.replace(/^\s*-+ /, "").trim()), index + 1]);
  }
  return [...passages, ...makePassage(pieces)];
}

/** Returns the comments and the strings that are sentences. Line comments in a row are one passage. */
function readCode(file: string, text: string): Passage[] {
  const starts = [0, ...[...text.matchAll(/\n/g)].map(({ index }) => index + 1)];
  const lineAt = (offset: number): number => starts.findLastIndex((start) => start <= offset) + 1;
  const { program, comments } = parseSync(file, text);
  const passages: Passage[] = [];
  const pieces: [string, number][] = [];
  for (const { type, value, start } of comments) {
    const line = lineAt(start);
    if (type === "Line") {
      if (pieces.at(-1)?.[1] !== line - 1) passages.push(...makePassage(pieces.splice(0)));
      pieces.push([withoutCode(value.trim()), line]);
    } else passages.push(...readBlockComment(value, line));
  }
  passages.push(...makePassage(pieces));
  visitStrings(program, (value, start) => {
    const inside = withoutCode(value);
    // The text of JSX begins with the end of the line before it.
    const indent = value.length - value.trimStart().length;
    if (isSentence(inside)) passages.push(...makePassage([[inside, lineAt(start + indent)]]));
  });
  return passages;
}

/** Returns the paragraphs of a block comment. */
function readBlockComment(value: string, firstLine: number): Passage[] {
  const passages: Passage[] = [];
  const pieces: [string, number][] = [];
  for (const [index, line] of value.split("\n").entries()) {
    const clean = withoutCode(line.replace(/^\s*\*+\s?/, "").trim());
    if (clean === "") passages.push(...makePassage(pieces.splice(0)));
    else pieces.push([clean, firstLine + index]);
  }
  return [...passages, ...makePassage(pieces)];
}

type SyntaxNode = {
  type?: string;
  start?: number;
  value?: unknown;
  quasis?: { value: { cooked: string | null } }[];
};

/**
 * Calls `visit` for each string, each text of JSX and each template of a syntax tree. Placeholders of
 * templates become X.
 */
function visitStrings(node: unknown, visit: (text: string, start: number) => void): void {
  if (typeof node !== "object" || node === null) return;
  const { type, start = 0, value, quasis } = node as SyntaxNode;
  if ((type === "Literal" || type === "JSXText") && typeof value === "string") visit(value, start);
  if (type === "TemplateLiteral" && quasis)
    visit(quasis.map((quasi) => quasi.value.cooked ?? "").join("X"), start);
  for (const child of Object.values(node)) visitStrings(child, visit);
}

/** Reports whether a string is prose, and not an identifier, a path, a header or SQL. */
const isSentence = (text: string): boolean =>
  /[a-z]+ [a-z]+ [a-z]+/i.test(text) &&
  !/^\s*(?:select|insert|update|delete|with|create|alter|from)\b/i.test(text);

/** Replaces inline code and the targets of links. */
const withoutCode = (text: string): string =>
  text
    .replace(/`[^`]*`/g, "X")
    .replace(/\]\([^)]*\)/g, "]")
    .replace(/\{@[^}]*\}/g, "X");

/** Returns the tracked files with prose, below the given paths. */
function listFiles(paths: readonly string[]): string[] {
  const tracked = execFileSync("git", ["ls-files", "--", ...paths], { encoding: "utf8" }).split("\n");
  const isProse = (file: string): boolean => /\.(?:md|tsx?|mts|js|sql)$/.test(file) || file === script;
  return tracked.filter((file) => isProse(file) && !file.startsWith("bench/results/"));
}

if (import.meta.main) {
  const hits = listFiles(process.argv.slice(2)).flatMap((file) => findHits(file, readFileSync(file, "utf8")));
  for (const { file, line, pattern, context, advice } of hits)
    console.log(`${file}:${line}: [${pattern}] ${context} -> ${advice}`);
  if (hits.length > 0) {
    console.error(`${hits.length} sentences to rewrite; docs/style.md has the rules`);
    process.exitCode = 1;
  }
}
