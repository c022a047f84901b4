/**
 * Writes docs/messages.md: the error texts, log lines and help texts of `src` as tables, so that they can be
 * reviewed together.
 *
 *   npm run messages             write the file
 *   npm run messages -- --check  exit with code 1 if the file is out of date
 */
import { existsSync, globSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { makeTable } from "./markdown.ts";
import {
  bindParameters,
  find,
  isNode,
  readName,
  readSourceFile,
  readText,
  type Scope,
  type SyntaxNode,
  visitNodes,
} from "./textsInCode.ts";

/**
 * Text that people read. `folder` is below `src`. `kind` is the code of an error, the level of a log line, or
 * the command, option or setting that a help text describes.
 */
type Message = { table: "errors" | "logs" | "help"; folder: string; kind: string; text: string };

/** `Message`, before it has its folder. */
type Found = Omit<Message, "folder">;

/** An expression in its file. `field` is the nearest property around it that names a field, or "". */
type Place = { node: SyntaxNode; scope: Scope; field: string };

/** Errors whose constructors take the text first. The constructor of `Refusal` takes a code before it. */
const textErrors = new RegExp(
  String.raw`^(?:\w+Refused|CannotStart|CallRejection|Unsendable|BadResponse|EgressRefusal|Unavailable|` +
    String.raw`ConnectionLost|NoStore)$`,
);

const levels = /^(?:debug|info|warn|error|fatal)$/;

/** The levels of functions that log their text. */
const logFunctions = new Map([
  ["logFailure", "error"],
  ["failure", "error"],
  ["onDamage", "error"],
  ["onOutdated", "fatal"],
]);

/** Properties of schemas and rows, which are not fields. */
const notFields = new RegExp(
  String.raw`^(?:error|message|help|takes|read|text|path|params|query|body|input|schema|fields|handle|code|` +
    String.raw`needs|row|parameters|documentation)$`,
);

/** Texts that follow the name of a field, which other code adds. */
const isProblem = (text: string): boolean =>
  /^(?:must|is|are|has|contains|requires|ends|exceeds) /.test(text);

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

/**
 * Returns a string with its field. Returns nothing if the text has no words apart from its field, or names
 * neither its field nor the values.
 */
function makeFound(
  table: Message["table"],
  kind: string,
  { text, field }: { text: string | null; field: string },
): Found[] {
  if (text === null || !/[a-z]{3}/i.test(text.replace(/^[\w.-]+:/, ""))) return [];
  const isBare = table === "errors" && isProblem(text);
  if (isBare && field === "" && text === "must be one of …") return [];
  return [{ table, kind, text: isBare ? `${field === "" ? "…" : field}: ${text}` : text }];
}

/** Returns the text of `new Refusal(code, text)` and of other errors. */
function readError({ node, scope }: Place): Found[] {
  const name = readName(node["callee"]);
  const [first, second] = node["arguments"] as unknown[];
  if (name === "Refusal")
    return makeFound("errors", readText(first, scope) ?? "…", { text: readText(second, scope), field: "" });
  return textErrors.test(name) ? makeFound("errors", name, { text: readText(first, scope), field: "" }) : [];
}

/** Returns the text of a call such as `refuse(text)`, as the called function completes it. */
function readRefusal({ node, scope, field }: Place): Found[] {
  const given = node["arguments"] as unknown[];
  const called = find(readName(node["callee"]), "functions", scope.file);
  const found: Found[] = [];
  if (called) {
    const inside = { file: called.file, parameters: bindParameters(called.node, given, scope) };
    visitNodes(called.node["body"], (part) => {
      if (part.type === "NewExpression") found.push(...readError({ node: part, scope: inside, field }));
    });
  }
  const problem = given.map((argument) => readText(argument, scope)).find((text) => text?.includes(" "));
  if (problem === undefined || problem === null) return [];
  const complete = found.filter(({ text }) => text.endsWith(problem));
  if (complete.length > 0) return complete;
  const text = isProblem(problem) ? problem : `…: ${problem}`;
  return makeFound("errors", "invalid", { text, field });
}

/** Returns the text of a log line. */
function readLogLine({ node, scope }: Place): Found[] {
  const callee = node["callee"] as SyntaxNode;
  const given = node["arguments"] as unknown[];
  const isLogger = callee.type === "MemberExpression" && /log$/i.test(readName(callee["object"]));
  const isComputed = isLogger && callee["computed"] === true;
  const name = readName(callee);
  const level = isComputed ? "…" : isLogger && levels.test(name) ? name : logFunctions.get(name);
  if (level === undefined) return [];
  const texts = given.map((argument) => readText(argument, scope) ?? readProperty(argument, scope));
  return makeFound("logs", level, { text: texts.find((text) => text !== null) ?? null, field: "" });
}

/** Returns the property `text` of an object. */
function readProperty(node: unknown, scope: Scope): string | null {
  if (!isNode(node) || node.type !== "ObjectExpression") return null;
  const property = (node["properties"] as SyntaxNode[]).find(({ key }) => readName(key) === "text");
  return property ? readText(property["value"], scope) : null;
}

/** Returns the texts of `switch (remedy.remedy)`, with which refusals end. */
function readRemedies({ node, scope }: Place): Found[] {
  if (readName(node["discriminant"]) !== "remedy") return [];
  return (node["cases"] as SyntaxNode[]).flatMap(({ test, consequent }) => {
    const found: Found[] = [];
    visitNodes(consequent, ({ type, argument }) => {
      if (type === "ReturnStatement")
        found.push(
          ...makeFound("errors", readText(test, scope) ?? "…", {
            text: readText(argument, scope),
            field: "",
          }),
        );
    });
    return found;
  });
}

/** Returns the help text of `.option(…)`, `.argument(…)`, `.description(…)`, or `command(usage, text)`. */
function readHelp({ node, scope }: Place): Found[] {
  const callee = node["callee"] as SyntaxNode;
  const [first, second] = node["arguments"] as unknown[];
  const name = readName(callee);
  if (name === "description") {
    const text = readText(first, scope);
    return makeFound("help", findCommand(callee["object"], scope), { text, field: "" });
  }
  if (name !== "option" && name !== "argument" && name !== "command") return [];
  const kind = readText(first, scope) ?? "…";
  const found = makeFound("help", kind, { text: readText(second, scope), field: "" });
  if (found.length > 0 || !isNode(second) || second.type !== "MemberExpression") return found;
  // A string from a table, such as `aboutLimits[name]`.
  const rows = find(readName(second["object"]), "constants", scope.file)?.node["properties"] ?? [];
  return (rows as SyntaxNode[]).flatMap(({ key, value }) =>
    makeFound("help", readName(key), { text: readText(value, scope), field: "" }),
  );
}

/** Returns the command that a chain of calls describes: `program.command("start").argument(…)`. */
function findCommand(node: unknown, scope: Scope): string {
  if (!isNode(node) || node.type !== "CallExpression") return "";
  if (readName(node["callee"]) === "command")
    return readText((node["arguments"] as unknown[])[0], scope) ?? "…";
  return findCommand((node["callee"] as SyntaxNode)["object"], scope);
}

/** Returns the texts of a call. */
function readCall(place: Place, folder: string): Found[] {
  const { node, scope, field } = place;
  const callee = node["callee"] as SyntaxNode;
  const name = readName(callee);
  if ((folder === "cli" || folder === "client") && /^(?:option|argument|description|command)$/.test(name))
    return readHelp(place);
  if (callee.type === "Identifier" && /^refuse(?:$|[A-Z])/.test(name)) return readRefusal(place);
  const lines = readLogLine(place);
  if (lines.length > 0 || callee.type !== "MemberExpression") return lines;
  // Schemas take a string as their last argument: `z.array(z.string(), "is not a list")`.
  const text = readText((node["arguments"] as unknown[]).at(-1), scope);
  return text !== null && isProblem(text) ? makeFound("errors", "invalid", { text, field }) : [];
}

/** Returns the texts of the properties `error`, `message` and `help` of an object. */
function readObject({ node, scope, field }: Place): Found[] {
  const properties = node["properties"] as SyntaxNode[];
  const readValue = (name: string): string | null =>
    readText(properties.find(({ key }) => readName(key) === name)?.["value"], scope);
  const code = readValue("refused") ?? (readValue("code") === "custom" ? "invalid" : "");
  return [
    ...makeFound("help", field, { text: readValue("help"), field }),
    ...["error", "message"].flatMap((name) => makeFound("errors", code, { text: readValue(name), field })),
  ];
}

/** Collects the texts below a node of the syntax tree. */
function collect(place: Omit<Place, "node"> & { node: unknown }, folder: string, found: Message[]): void {
  const { node, scope } = place;
  if (typeof node !== "object" || node === null) return;
  let { field } = place;
  if (isNode(node)) {
    const here: Place = { node, scope, field };
    if (node.type === "NewExpression") add(readError(here));
    if (node.type === "CallExpression") add(readCall(here, folder));
    if (node.type === "ObjectExpression") add(readObject(here));
    if (node.type === "SwitchStatement") add(readRemedies(here));
    const name = node.type === "Property" ? readName(node["key"]) : "";
    if (name !== "" && !notFields.test(name)) field = name;
  }
  for (const child of Object.values(node)) collect({ node: child, scope, field }, folder, found);

  function add(texts: readonly Found[]): void {
    found.push(...texts.map((text) => ({ ...text, folder })));
  }
}

const home = join(import.meta.dirname, "..");

/** Returns the messages of `src`, each text once per folder. */
function readMessages(): Message[] {
  const found: Message[] = [];
  for (const name of globSync("src/**/*.ts", { cwd: home }).toSorted()) {
    const file = readSourceFile(join(home, name));
    const folder = dirname(name).replace(/^src\//, "");
    collect({ node: file.program, scope: { file }, field: "" }, folder, found);
  }
  const byText = new Map<string, Message>();
  // The same text may be found at a call and in the function that is called, which knows its code.
  for (const message of found) {
    const key = JSON.stringify([
      message.table,
      message.folder,
      message.table === "errors" ? "" : message.kind,
      message.text,
    ]);
    if ((byText.get(key)?.kind ?? "") === "") byText.set(key, message);
  }
  return [...byText.values()];
}

const opening = `# Texts of errors and the log

<!-- Generated by scripts/messages.ts from the code. Change the texts there and run: npm run messages -->
<!-- plain-english: off -->

The texts that callers and operators read, in one place for review. \`…\` is the place of a value.
[Style](style.md) has the rules:
\`field: what is wrong; what to do\` for errors, what failed and what happens next for log
lines, a noun phrase for help.

These texts are not included:

* texts that several functions compute together;
* results and progress that commands print;
* texts of libraries and of the database;
* errors of the program itself (\`new Error\`), which only its log shows.

## Fixed texts

These texts stay byte for byte as they are.
`;

/** Returns the tables of one kind of messages, one for each folder. */
function makeTables(messages: readonly Message[], head: readonly string[]): string[] {
  const byFolder = Map.groupBy(messages, ({ folder }) => folder);
  return [...byFolder].flatMap(([folder, rows]) => {
    const cells = rows.map(({ kind, text }) => [kind, text]);
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
    ...["", "## Help", ...makeTables(select("help"), ["Subject", "Text"])],
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
