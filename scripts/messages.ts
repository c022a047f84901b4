/**
 * Writes docs/messages.md: all error texts, log lines and help texts of `src` as tables, so that they can be
 * reviewed together.
 *
 *   npm run messages             write the file
 *   npm run messages -- --check  exit with code 1 if the file is out of date
 */
import { existsSync, globSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { parseSync } from "oxc-parser";
import { makeTable } from "./markdown.ts";

/**
 * A text that a person reads. `folder` is below `src`. `kind` is the code of an error, or the level of a log
 * line.
 */
type Message = { table: "errors" | "logs" | "help"; folder: string; kind: string; text: string };

type SyntaxNode = { type: string; [field: string]: unknown };

/** Errors whose constructors take the text first. Those of `Refusal` take a code before it. */
const textErrors =
  /^(?:\w+Refused|CannotStart|CallRejection|Unsendable|BadResponse|EgressRefusal|Unavailable|ConnectionLost)$/;

const levels = /^(?:debug|info|warn|error|fatal)$/;

/** Error texts that must stay as they are. */
const fixedTexts: readonly (readonly string[])[] = [
  [
    "`trigger rest api is only usable with sdk versions after v1.0.0 major version`",
    "the texts of the hosted service, which tests of the published workflow client compare",
  ],
  [
    "`detected a non-workflow destination for trigger/invoke. " +
      "make sure you are sending the request to the correct endpoint`",
    "as above",
  ],
  ["`internal error…`", "clients and tools look for its beginning"],
];

const isNode = (value: unknown): value is SyntaxNode =>
  typeof value === "object" && value !== null && "type" in value;

/**
 * Returns the text of an expression. Parts that are computed are `…`. Returns null if nothing of it is known.
 */
function readText(node: unknown): string | null {
  if (!isNode(node)) return null;
  if (node.type === "Literal") return typeof node["value"] === "string" ? node["value"] : null;
  if (node.type === "TemplateLiteral") {
    const parts = node["quasis"] as { value: { cooked: string } }[];
    return parts.map(({ value }) => value.cooked).join("…");
  }
  if (node.type === "BinaryExpression" && node["operator"] === "+") {
    const [left, right] = [readText(node["left"]), readText(node["right"])];
    return left === null && right === null ? null : `${left ?? "…"}${right ?? "…"}`;
  }
  if (node.type === "ConditionalExpression") {
    const [first, second] = [readText(node["consequent"]), readText(node["alternate"])];
    return first === null ? second : second === null ? first : `${first} / ${second}`;
  }
  return null;
}

/** Returns the messages of one expression, if it makes an error, logs, or describes an option. */
function readMessage(node: SyntaxNode, folder: string): Message[] {
  const message = (table: Message["table"], kind: string, expression: unknown): Message[] => {
    const text = readText(expression);
    return text === null || !/[a-z]/i.test(text) ? [] : [{ table, folder, kind, text }];
  };
  const list = (node["arguments"] ?? []) as unknown[];
  const callee = node["callee"];
  if (node.type === "NewExpression" && isNode(callee)) {
    const name = String(callee["name"]);
    if (name === "Refusal") return message("errors", readText(list[0]) ?? "…", list[1]);
    return textErrors.test(name) ? message("errors", name, list[0]) : [];
  }
  if (node.type === "CallExpression" && isNode(callee)) {
    const property = isNode(callee["property"]) ? String(callee["property"]["name"]) : "";
    const object = isNode(callee["object"]) ? callee["object"] : undefined;
    const objectName = String(
      object?.["name"] ?? (isNode(object?.["property"]) ? object["property"]["name"] : ""),
    );
    if (levels.test(property) && /log$/i.test(objectName))
      return message(
        "logs",
        property,
        list.find((argument) => readText(argument) !== null),
      );
    if (property === "description") return message("help", "", list[0]);
    return callee["name"] === "refuseText" ? message("errors", "invalid", list[1]) : [];
  }
  if (node.type === "Property" && isNode(node["key"])) {
    const name = node["key"]["name"];
    if (name === "help") return message("help", "", node["value"]);
    return name === "error" || name === "message" ? message("errors", "", node["value"]) : [];
  }
  return [];
}

/** Collects the messages below a node of the syntax tree. */
function collect(node: unknown, folder: string, found: Message[]): void {
  if (typeof node !== "object" || node === null) return;
  if (isNode(node)) found.push(...readMessage(node, folder));
  for (const child of Object.values(node)) collect(child, folder, found);
}

const home = join(import.meta.dirname, "..");

/** Returns all messages of `src`, each text once per folder. */
function readMessages(): Message[] {
  const found: Message[] = [];
  for (const file of globSync("src/**/*.ts", { cwd: home }).toSorted()) {
    const { program } = parseSync(file, readFileSync(join(home, file), "utf8"));
    collect(program, dirname(file).replace(/^src\//, ""), found);
  }
  return [...new Map(found.map((message) => [JSON.stringify(message), message])).values()];
}

const opening = `# Messages

<!-- Generated by scripts/messages.ts from the code. Change the texts there and run: npm run messages -->
<!-- plain-english: off -->

All texts that callers and operators read, in one place for review. \`…\` stands for a value.
[Style](style.md) has the rules:
\`field: what is wrong; what to do\` for errors, what failed and what happens next for log
lines, a noun phrase for help.

## Fixed texts

These texts stay byte for byte as they are.
`;

/** Returns the tables of one kind of messages, one for each folder. */
function makeTables(messages: readonly Message[], head: readonly string[]): string[] {
  const byFolder = Map.groupBy(messages, ({ folder }) => folder);
  return [...byFolder].flatMap(([folder, rows]) => {
    const cells = rows.map(({ kind, text }) => (head.length === 1 ? [text] : [kind, text]));
    return ["", `### ${folder}`, ""].concat(makeTable(head, cells));
  });
}

function makeDocument(): string {
  const messages = readMessages();
  const select = (table: Message["table"]): Message[] =>
    messages.filter((message) => message.table === table);
  const lines = [
    opening,
    ...makeTable(["Text", "Reason"], fixedTexts),
    ...["", "## Errors", ...makeTables(select("errors"), ["Code", "Text"])],
    ...["", "## Log lines", ...makeTables(select("logs"), ["Level", "Text"])],
    ...["", "## Help", ...makeTables(select("help"), ["Text"])],
  ];
  return `${lines.join("\n")}\n`;
}

const path = join(home, "docs/messages.md");
const text = makeDocument();
if (!process.argv.includes("--check")) writeFileSync(path, text);
else if (!existsSync(path) || readFileSync(path, "utf8") !== text) {
  console.error("docs/messages.md is out of date. Run npm run messages, check the diff, and commit it.");
  process.exitCode = 1;
}
