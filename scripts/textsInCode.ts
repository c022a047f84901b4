// Reads texts in TypeScript: strings, templates, constants, and functions that only return a string.
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { parseSync } from "oxc-parser";

/** A node of a syntax tree. */
export type SyntaxNode = { type: string; [field: string]: unknown };

/** A file: its syntax tree, its constants and functions by name, and where its imports come from. */
export type SourceFile = {
  program: unknown;
  constants: Map<string, SyntaxNode>;
  functions: Map<string, SyntaxNode>;
  imports: Map<string, { path: string; name: string }>;
};

/** A place to read in: the file, the texts of parameters, and how many calls were followed to get there. */
export type Scope = { file: SourceFile; parameters?: Map<string, string>; calls?: number };

/** Reports whether a value is a node of a syntax tree. */
export const isNode = (value: unknown): value is SyntaxNode =>
  typeof value === "object" && value !== null && "type" in value;

/** Returns the name of an identifier, or of the member that an expression reads. Otherwise "". */
export function readName(node: unknown): string {
  if (!isNode(node)) return "";
  if (node.type === "MemberExpression") return node["computed"] === true ? "" : readName(node["property"]);
  return typeof node["name"] === "string" ? node["name"] : "";
}

/** Calls `visit` for a node of the syntax tree and for all nodes below it. */
export function visitNodes(node: unknown, visit: (node: SyntaxNode) => void): void {
  if (typeof node !== "object" || node === null) return;
  if (isNode(node)) visit(node);
  for (const child of Object.values(node)) visitNodes(child, visit);
}

const read = new Map<string, SourceFile>();

/** Reads a file. Each file is read once. */
export function readSourceFile(path: string): SourceFile {
  const known = read.get(path);
  if (known) return known;
  const { program } = parseSync(path, readFileSync(path, "utf8"));
  const file: SourceFile = { program, constants: new Map(), functions: new Map(), imports: new Map() };
  read.set(path, file);
  for (const statement of program.body as unknown as SyntaxNode[]) {
    const declared = isNode(statement["declaration"]) ? statement["declaration"] : statement;
    for (const { id, init } of (declared["declarations"] ?? []) as SyntaxNode[])
      if (isNode(init)) file.constants.set(readName(id), withoutType(init));
    const source = isNode(statement["source"]) ? String(statement["source"]["value"]) : "";
    if (statement.type === "ImportDeclaration" && source.startsWith("."))
      for (const { local, imported } of statement["specifiers"] as SyntaxNode[])
        file.imports.set(readName(local), { path: join(dirname(path), source), name: readName(imported) });
  }
  visitNodes(program, (node) => {
    if (node.type === "FunctionDeclaration") file.functions.set(readName(node["id"]), node);
    const init = node.type === "VariableDeclarator" ? node["init"] : null;
    if (isNode(init) && init.type === "ArrowFunctionExpression")
      file.functions.set(readName(node["id"]), init);
  });
  return file;
}

/** Returns the value of `value as const` and `value satisfies Type`. */
const withoutType = (node: SyntaxNode): SyntaxNode =>
  /^TS(?:As|Satisfies)Expression$/.test(node.type) && isNode(node["expression"]) ? node["expression"] : node;

/** Returns the constant or function of a name, and its file. Imports are followed. */
export function find(
  name: string,
  kind: "constants" | "functions",
  file: SourceFile,
): { node: SyntaxNode; file: SourceFile } | null {
  const node = file[kind].get(name);
  if (node) return { node, file };
  const imported = file.imports.get(name);
  if (!imported || !existsSync(imported.path)) return null;
  const other = readSourceFile(imported.path);
  const target = other[kind].get(imported.name);
  return target ? { node: target, file: other } : null;
}

/**
 * Returns the text of an expression. Parts that are computed are `…`. Returns null if nothing of it is known.
 */
export function readText(node: unknown, scope: Scope): string | null {
  if (!isNode(node)) return null;
  if (node.type === "Literal") return typeof node["value"] === "string" ? node["value"] : null;
  if (node.type === "ParenthesizedExpression") return readText(node["expression"], scope);
  if (node.type === "TemplateLiteral") return readTemplate(node, scope);
  if (node.type === "BinaryExpression" && node["operator"] === "+") {
    const [left, right] = [readText(node["left"], scope), readText(node["right"], scope)];
    return left === null && right === null ? null : `${left ?? "…"}${right ?? "…"}`;
  }
  if (node.type === "ConditionalExpression") {
    const [first, second] = [readText(node["consequent"], scope), readText(node["alternate"], scope)];
    return first === null ? second : second === null ? first : `${first} / ${second}`;
  }
  if (node.type === "Identifier") {
    const parameter = scope.parameters?.get(readName(node));
    if (parameter !== undefined) return parameter;
    const constant = find(readName(node), "constants", scope.file);
    return constant ? readText(constant.node, { file: constant.file, calls: scope.calls ?? 0 }) : null;
  }
  return node.type === "CallExpression" ? readReturned(node, scope) : null;
}

/** Returns the text of a template. Only placeholders that are a name are replaced by their texts. */
function readTemplate(node: SyntaxNode, scope: Scope): string {
  const parts = node["quasis"] as { value: { cooked: string } }[];
  const values = (node["expressions"] as SyntaxNode[]).map((value) =>
    value.type === "Identifier" ? readText(value, scope) : null,
  );
  return parts
    .map(({ value }, index) => (index === 0 ? "" : (values[index - 1] ?? "…")) + value.cooked)
    .join("");
}

/** Returns the text that a called function returns, if it only returns a string. One call is followed. */
function readReturned({ callee, arguments: given }: SyntaxNode, scope: Scope): string | null {
  if (!isNode(callee) || callee.type !== "Identifier" || (scope.calls ?? 0) > 0) return null;
  const called = find(readName(callee), "functions", scope.file);
  if (!called) return null;
  const body = called.node["body"] as SyntaxNode;
  const [only, ...others] = body.type === "BlockStatement" ? (body["body"] as SyntaxNode[]) : [body];
  if (others.length > 0) return null;
  const returned = only?.type === "ReturnStatement" ? only["argument"] : only;
  const parameters = bindParameters(called.node, given as unknown[], scope);
  return readText(returned, { file: called.file, parameters, calls: 1 });
}

/** Returns the texts of a function's parameters, as far as the arguments of a call are texts. */
export function bindParameters(
  called: SyntaxNode,
  given: readonly unknown[],
  scope: Scope,
): Map<string, string> {
  const names = (called["params"] as SyntaxNode[]).map(readName);
  return new Map(names.map((name, index) => [name, readText(given[index], scope) ?? "…"]));
}
