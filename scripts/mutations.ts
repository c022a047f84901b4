// Finds the small faults that `npm run mutate` puts into a source file, one at a time.
import { parseSync } from "oxc-parser";

/** One fault: the text from `start` to `end` of the file is replaced by `text`. */
export type Mutation = { start: number; end: number; text: string };

type Node = { type: string; start: number; end: number } & Record<string, unknown>;

const swapped: Readonly<Record<string, readonly string[]>> = {
  "<": ["<=", ">="],
  "<=": ["<", ">"],
  ">": [">=", "<="],
  ">=": [">", "<"],
  "===": ["!=="],
  "!==": ["==="],
  "+": ["-"],
  "-": ["+"],
  "*": ["/"],
  "/": ["*"],
  "%": ["*"],
  "&&": ["||"],
  "||": ["&&"],
  "+=": ["-="],
  "-=": ["+="],
  "++": ["--"],
  "--": ["++"],
};

const renamed: Readonly<Record<string, string>> = {
  some: "every",
  every: "some",
  min: "max",
  max: "min",
  floor: "ceil",
  ceil: "floor",
};

/** Wrappers for the type checker. The expression inside them is code. */
const transparent = new Set(["TSAsExpression", "TSSatisfiesExpression", "TSNonNullExpression"]);

/** Returns every mutation of a source file, in source order. */
export function listMutations(file: string, source: string): Mutation[] {
  const { program, errors } = parseSync(file, source);
  if (errors.length > 0) throw new Error(`${file}: cannot be parsed: ${errors[0]?.message}`);
  const found: Mutation[] = [];
  walk(program as unknown as Node, (node) => found.push(...listMutationsOf(node, source)));
  return found.toSorted((a, b) => a.start - b.start || a.end - b.end);
}

function walk(node: Node, visit: (node: Node) => void): void {
  if (/^(Import|ExportAll)/.test(node.type)) return;
  if (node.type.startsWith("TS") && !transparent.has(node.type)) return;
  visit(node);
  for (const [name, value] of Object.entries(node)) {
    // The name of a property is not an expression, unless it is computed.
    if (name === "key" && node["computed"] !== true) continue;
    for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) walk(child, visit);
  }
}

const isNode = (value: unknown): value is Node =>
  typeof value === "object" && value !== null && "type" in value && "start" in value;

function listMutationsOf(node: Node, source: string): Mutation[] {
  const replace = (by: string, { start, end } = node): Mutation => ({ start, end, text: by });
  const textOf = ({ start, end }: Node): string => source.slice(start, end);
  const negate = (test: unknown): Mutation[] => (isNode(test) ? [replace(`!(${textOf(test)})`, test)] : []);
  switch (node.type) {
    case "BinaryExpression":
    case "LogicalExpression":
    case "AssignmentExpression":
      return listSwaps(node, source);
    case "UpdateExpression":
      return (swapped[String(node["operator"])] ?? []).map((by) =>
        replace(textOf(node).replace(String(node["operator"]), by)),
      );
    case "IfStatement":
    case "ConditionalExpression":
      return negate(node["test"]);
    case "UnaryExpression":
      return node["operator"] === "!" && isNode(node["argument"]) ? [replace(textOf(node["argument"]))] : [];
    case "Literal":
      return listLiterals(node["value"]).map((by) => replace(by));
    case "ExpressionStatement":
      return "directive" in node && node["directive"] ? [] : [replace(";")];
    case "MemberExpression":
      return listRenames(node["property"], source);
    case "FunctionDeclaration":
    case "FunctionExpression":
    case "ArrowFunctionExpression":
      return listEarlyReturns(node["body"]);
    default:
      return [];
  }
}

function listSwaps(node: Node, source: string): Mutation[] {
  const { operator, left, right } = node;
  if (!isNode(left) || !isNode(right)) return [];
  // Texts cannot be subtracted.
  const isText = [left, right].some(
    ({ type, value }) => type === "TemplateLiteral" || typeof value === "string",
  );
  if (isText && String(operator).startsWith("+")) return [];
  if (operator === "??") return [{ start: left.end, end: right.end, text: "" }];
  const between = source.slice(left.end, right.start);
  const at = left.end + between.indexOf(String(operator));
  return (swapped[String(operator)] ?? []).map((by) => ({
    start: at,
    end: at + String(operator).length,
    text: by,
  }));
}

function listLiterals(value: unknown): string[] {
  if (typeof value === "boolean") return [String(!value)];
  if (typeof value === "number") return [`${value + 1}`, value > 0 ? `${value - 1}` : "(-1)"];
  if (typeof value === "string") return [value === "" ? '"mutated"' : '""'];
  return [];
}

function listRenames(property: unknown, source: string): Mutation[] {
  if (!isNode(property) || property.type !== "Identifier") return [];
  const by = renamed[source.slice(property.start, property.end)];
  return by === undefined ? [] : [{ start: property.start, end: property.end, text: by }];
}

function listEarlyReturns(body: unknown): Mutation[] {
  if (!isNode(body)) return [];
  if (body.type !== "BlockStatement") return [{ start: body.start, end: body.end, text: "(undefined)" }];
  return [{ start: body.start + 1, end: body.start + 1, text: " return undefined;" }];
}
