// The examples in the reference: a request as a curl command, and its response.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Route } from "../src/api/route/route.ts";
import type { Example, Examples } from "../test/referenceExamples/recorder.ts";

const file = join(import.meta.dirname, "../docs/reference/examples.json");
const examples = JSON.parse(readFileSync(file, "utf8")) as Examples;

/** A longer request or response is cut. */
const maxLines = 30;
/** A part of JSON that is not longer is written in one line. */
const maxColumns = 72;

/** Returns the example of a route as two blocks of code. */
export function makeExampleText(route: Route): string[] {
  const example = examples[`${route.method} ${route.path}`];
  if (!example) return [];
  const { request, response } = example;
  const title = `Response, with status ${response.status}`;
  return [
    ...makeBlock("sh", formatRequest(route, request)),
    ...(response.body === undefined ? [`${title} and no body.`, ""] : [`${title}:`, ""]),
    ...(response.body === undefined ? [] : formatResponse(response)),
  ];
}

function makeBlock(language: string, text: string): string[] {
  const lines = text.split("\n");
  const shown = lines.length > maxLines ? [...lines.slice(0, maxLines), "…"] : lines;
  return [`\`\`\`${language}`, ...shown, "```", ""];
}

function formatResponse({ type, body }: Example["response"]): string[] {
  if (type === undefined) return makeBlock("json", formatJson(body));
  // Lines of JSON are kept as a list.
  if (Array.isArray(body)) return makeBlock("json", body.map(formatOnOneLine).join("\n"));
  return makeBlock("text", String(body));
}

/** Returns a curl command, with each option on its own line if the command is long. */
function formatRequest({ method, access }: Route, { path, headers, body }: Example["request"]): string {
  const isJson = typeof body !== "string" && body !== undefined;
  const all = { ...headers, ...(isJson && { "Content-Type": "application/json" }) };
  const words = [
    `curl ${method === "GET" ? "" : `-X ${method} `}"$WAYPOST_URL${path}"`,
    ...credentials[access],
    ...Object.entries(all).map(([name, value]) => `-H "${name}: ${value}"`),
    ...(body === undefined ? [] : [`-d '${typeof body === "string" ? body : formatJson(body)}'`]),
  ];
  const line = words.join(" ");
  return line.length <= maxColumns ? line : words.join(" \\\n  ");
}

const credentials: Readonly<Record<Route["access"], readonly string[]>> = {
  token: ['-H "Authorization: Bearer $WAYPOST_TOKEN"'],
  account: ['-u "$ACCOUNT:$PASSWORD"'],
  operator: ['-u "operator:$WAYPOST_OPERATOR_PASSWORD"'],
  open: [],
  source: [],
  console: [],
  attempt: [],
  hook: [],
};

/** Returns JSON, with each part that fits into a line on one line. */
function formatJson(value: unknown, indent = ""): string {
  const line = formatOnOneLine(value);
  if (typeof value !== "object" || value === null || indent.length + line.length <= maxColumns) return line;
  const inner = `${indent}  `;
  const isList = Array.isArray(value);
  const parts = Object.entries(value).map(
    ([name, part]) => `${inner}${isList ? "" : `${JSON.stringify(name)}: `}${formatJson(part, inner)}`,
  );
  const [open, close] = isList ? "[]" : "{}";
  return [open, parts.join(",\n"), `${indent}${close}`].join("\n");
}

function formatOnOneLine(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(formatOnOneLine).join(", ")}]`;
  const parts = Object.entries(value).map(
    ([name, part]) => `${JSON.stringify(name)}: ${formatOnOneLine(part)}`,
  );
  return `{${parts.join(", ")}}`;
}
