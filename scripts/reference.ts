// Writes docs/reference.md from the table of routes and the table of settings. With --check it writes nothing, and fails
// where the file differs.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { openApi } from "../src/api/server/openapi.ts";
import type { Route } from "../src/api/route/route.ts";
import { takesFieldsInBody } from "../src/api/route/route.ts";
import { routes } from "../src/api/routes/index.ts";
import { settingRows } from "../src/api/settings/table.ts";
import type { ErrorCode } from "../src/core/values/errors.ts";
import { errorCodes } from "../src/core/values/errors.ts";
import { limits } from "../src/core/values/limits.ts";
import { canonicalName } from "../src/core/values/headers.ts";

// What is used of the document.
type Schema = {
  $ref?: string;
  type?: string;
  const?: unknown;
  enum?: readonly unknown[];
  description?: string;
  default?: unknown;
  properties?: Record<string, Schema>;
  required?: readonly string[];
  items?: Schema;
  additionalProperties?: Schema | boolean;
  anyOf?: readonly Schema[];
  oneOf?: readonly Schema[];
};
type Content = { description: string; required?: boolean; content: Record<string, { schema: Schema }> };
type Parameter = { $ref?: string; name: string; in: string; required: boolean; description: string; schema: Schema };
type Operation = { parameters: Parameter[]; requestBody?: Content; responses: Record<string, Content & { $ref?: string }> };
type Document = { paths: Record<string, Record<string, Operation>>; components: { schemas: Record<string, Schema> } };

const document = openApi(routes) as unknown as Document;
function makeReference(): string {
  const tags = [...new Set(routes.map(({ tag }) => tag))];
  const lines = [
    opening,
    ...tags.map((tag) => `- [${tag}](${toAnchor(tag)})`),
    ...["Settings", "Shapes", "Refusals", "Limits"].map((title) => `- [${title}](${toAnchor(title)})`),
    "",
    ...tags.flatMap((tag) => makeTagSection(tag)),
    ...makeSettingsSection(),
    ...makeShapesSection(),
    ...makeRefusalsSection(),
    ...makeLimitsSection(),
  ];
  return `${lines
    .join("\n")
    .replace(/\n{3,}/g, "\n\n")
    .trimEnd()}\n`;
}

const opening = `# Reference

<!-- Written by scripts/reference.ts from the tables of the code. Change those, and run: npm run reference -->

Every request carries the token of the account, as \`Authorization: Bearer <token>\` or as the query parameter \`svc_token\`,
unless it says otherwise below. Whatever is named \`Svc-…\` or \`svc…\` may be named \`Upstash-…\`, \`upstash-…\` or
\`qstash…\` instead. Answers are JSON. They may gain fields. The same as a document for programs: [openapi.json](openapi.json).
In plain words: [guides](guides/).
`;

function makeTagSection(tag: string): string[] {
  const own = routes.filter((route) => route.tag === tag);
  const list = own.map((route) => [`[\`${formatRouteName(route)}\`](${toAnchor(formatRouteName(route))})`, route.summary]);
  return [`## ${tag}`, "", ...makeTable(["Request", "What it does"], list), "", ...own.flatMap(makeRouteText)];
}

const formatRouteName = ({ method, path }: Route): string => `${method} ${path}`;

/** The anchor that is made of a heading where Markdown is shown. */
const toAnchor = (heading: string): string =>
  `#${heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, "")
    .replaceAll(" ", "-")}`;

function makeRouteText(route: Route): string[] {
  const operation = document.paths[route.path]?.[route.method.toLowerCase()];
  if (!operation) throw new Error(`${formatRouteName(route)} is not in the document`);
  const about = [`${route.summary}.`, route.about, aboutAccess[route.access]].filter(Boolean).join(" ");
  return [
    ...[`### \`${formatRouteName(route)}\``, "", about, ""],
    ...makeParametersText(operation),
    ...(route.settings ? [aboutSettings[route.settings], ""] : []),
    ...(operation.requestBody ? makeBodyText(route, operation.requestBody) : []),
    ...Object.entries(operation.responses).flatMap(([status, answer]) => (answer.$ref ? [] : makeResponseText(route, status, answer))),
    ...makeRefusalsText(route, operation),
  ];
}

const aboutAccess: Record<Route["access"], string> = {
  token: "",
  account:
    'Needs the user name of the account, or its id, and its password, as HTTP Basic authentication. A refusal is `{"code": …, "message": …}`.',
  operator:
    'Needs the user name `operator` and the password of `WAYPOST_OPERATOR_PASSWORD`, as HTTP Basic authentication; without that setting it is turned off. A refusal is `{"code": …, "message": …}`.',
  open: "Needs no token.",
  source: "Needs no token: the secret in its path is the proof.",
  hook: "Needs no token: whoever knows the URL can call it.",
};

const aboutSettings: Record<NonNullable<Route["settings"]>, string> = {
  all: "Takes all [settings](#settings), as headers or as query parameters.",
  retry: "Takes the [settings](#settings) that are marked for retries, as headers or as query parameters.",
  resume: "Takes the [settings](#settings) that it names, as headers or as query parameters.",
};

function makeParametersText({ parameters }: Operation): string[] {
  const own = parameters.filter(({ $ref }) => $ref === undefined);
  if (own.length === 0) return [];
  const rows = own.map(({ name, in: location, description, schema }) => [
    `\`${name}\``,
    location,
    formatType(schema),
    withDefault(description, schema),
  ]);
  return [...makeTable(["Parameter", "In", "Type", "Meaning"], rows), ""];
}

const withDefault = (about: string, { default: normally }: Schema): string =>
  [about, ["string", "number", "boolean"].includes(typeof normally) && normally !== "" ? `Default: \`${JSON.stringify(normally)}\`.` : ""]
    .filter(Boolean)
    .join(" ");

function makeBodyText(route: Route, { description, content, required }: Content): string[] {
  const [[type, { schema }] = ["", { schema: {} }]] = Object.entries(content);
  const kind = type === "*/*" ? "of any type" : `\`${type}\``;
  const sizeLimit = route.body && `, ${formatSize(route.body.maxBytes)} at most`;
  const title = `Body, ${kind}${required ? "" : ", optional"}${sizeLimit ?? ""}: ${lowerFirst(description)}`;
  // What the query takes has been told already.
  return [title, "", ...(takesFieldsInBody(route) ? [] : makeFieldsTable(schema, "request"))];
}

const describedFields = new Map<string, string>();

/** The table of the fields of an answer, or where the same one stands already. */
function makeResponseText(route: Route, status: string, { description, content }: Content): string[] {
  const [{ schema } = { schema: {} }] = Object.values(content);
  const title = `**${status}** ${description}`;
  const typeNote = schema.type === "object" || schema.properties || schema.anyOf ? "" : ` The answer: ${formatType(schema)}.`;
  const rows = makeFieldsTable(schema, "answer");
  const describedBy = describedFields.get(rows.join("\n"));
  if (rows.length > 6 && describedBy !== undefined) {
    const where = describedBy === formatRouteName(route) ? "above" : `[\`${describedBy}\`](${toAnchor(describedBy)})`;
    return [`${title}${typeNote} Its fields are those of ${where}.`, ""];
  }
  describedFields.set(rows.join("\n"), formatRouteName(route));
  return [`${title}${typeNote}`, "", ...rows];
}

const commonRefusals: ReadonlySet<ErrorCode> = new Set(["invalid", "unauthorized", "headers-too-large", "stopping"]);

function makeRefusalsText({ refusals }: Route, { responses }: Operation): string[] {
  const named = Object.values(responses).flatMap(({ $ref }) => ($ref ? [$ref.slice($ref.lastIndexOf("/") + 1) as ErrorCode] : []));
  const codes = [...new Set([...named, ...refusals])].filter((code) => !commonRefusals.has(code));
  const sorted = codes.toSorted((one, other) => errorCodes[one].status - errorCodes[other].status);
  return sorted.length === 0 ? [] : [`Refusals: ${sorted.map((code) => `${errorCodes[code].status} \`${code}\``).join(", ")}.`, ""];
}

type Field = { name: string; types: string[]; isRequired: boolean; descriptions: string[] };

function makeFieldsTable(schema: Schema, direction: "request" | "answer"): string[] {
  const fields = mergeFields(listFields(schema, ""));
  if (fields.length === 0) return [];
  const formatPresence = ({ isRequired }: Field): string =>
    direction === "request" ? (isRequired ? ", required" : "") : isRequired ? "" : ", may be absent";
  const rows = fields.map((field) => [
    `\`${field.name}\``,
    `${field.types.join(" or ")}${formatPresence(field)}`,
    field.descriptions.join(" "),
  ]);
  return [...makeTable(["Field", "Type", "Meaning"], rows), ""];
}

/** The fields of an object, and of what is in it. Those of alternatives stand one after another. */
function listFields(schema: Schema, prefix: string): Field[] {
  const { properties = {}, required = [], items } = schema;
  if (items) return listFields(items, `${prefix === "" ? "" : prefix.slice(0, -1)}[].`);
  const own = Object.entries(properties).flatMap(([name, field]) => {
    const row = {
      name: `${prefix}${name}`,
      types: [formatType(field)],
      isRequired: required.includes(name),
      descriptions: listDescriptions(field),
    };
    return [row].concat(listFields(field, `${prefix}${name}.`));
  });
  return own.concat(listAlternativeFields(listAlternatives(schema), prefix));
}

/** What only some of the alternatives have is not required, and says which one it belongs to, where that has a name. */
function listAlternativeFields(alternatives: readonly Schema[], prefix: string): Field[] {
  const fields = alternatives.map((one) => listFields(one, prefix));
  const objects = fields.filter(({ length }) => length > 0);
  return fields.flatMap((own, at) => {
    const name = Object.values(alternatives[at]?.properties ?? {}).find((field) => field.const !== undefined)?.const;
    return own.map((field) => {
      if (objects.every((others) => others.some((other) => other.name === field.name))) return field;
      const descriptions = typeof name === "string" ? [`Of \`${name}\`.`, ...field.descriptions] : field.descriptions;
      return Object.assign(field, { isRequired: field.isRequired && typeof name !== "string", descriptions });
    });
  });
}

const listAlternatives = ({ anyOf, oneOf }: Schema): readonly Schema[] => anyOf ?? oneOf ?? [];

const listDescriptions = (field: Schema): string[] => [withDefault(field.description ?? "", field)].filter(Boolean);

/** Fields of the same name in one row. */
function mergeFields(fields: readonly Field[]): Field[] {
  const found = new Map<string, Field>();
  for (const field of fields) {
    const before = found.get(field.name);
    if (!before) found.set(field.name, field);
    else {
      const types = [...new Set([...before.types, ...field.types])];
      const descriptions = [...new Set([...before.descriptions, ...field.descriptions])];
      found.set(field.name, { name: field.name, types, descriptions, isRequired: before.isRequired && field.isRequired });
    }
  }
  return [...found.values()];
}

function formatType(schema: Schema): string {
  const { $ref, type, const: constant, enum: options, items, additionalProperties } = schema;
  if ($ref) return linkTo($ref.slice($ref.lastIndexOf("/") + 1));
  if (constant !== undefined) return `\`${JSON.stringify(constant)}\``;
  if (options) return options.map((value) => `\`${JSON.stringify(value)}\``).join(" or ");
  if (items) return `list of ${formatType(items)}`;
  const alternatives = listAlternatives(schema);
  if (alternatives.length > 0) return [...new Set(alternatives.map(formatType))].join(" or ");
  if (typeof additionalProperties === "object" && !schema.properties) return `map of ${formatType(additionalProperties)}`;
  return type ?? "anything";
}

const linkTo = (shape: string): string => `[${shape}](${toAnchor(shape)})`;

const aboutAllSettings = `## Settings

Of a message: a header, or the query parameter of the same name in lower case (\`svc-retries=5\`). The header wins. A URL
group has defaults below both. An unknown setting of this brand is refused; one of the other brand is ignored, and named in
the response header \`Waypost-Ignored\`.

Those for callbacks are also there as \`Svc-Callback-<Name>\` and \`Svc-Failure-Callback-<Name>\`. \`Svc-Forward-<Name>\`,
\`Svc-Callback-Forward-<Name>\` and \`Svc-Failure-Callback-Forward-<Name>\` give a header that is delivered as \`<Name>\`.
`;

function makeSettingsSection(): string[] {
  const rows = Object.entries(settingRows).map(([name, { about, example, forCallbacks, forRetries }]) => {
    const isForCallbacks = forCallbacks === true ? "yes" : "";
    const isForRetries = forRetries === true ? "yes" : "";
    return [`\`${canonicalName(`Svc-${name}`)}\``, about, `\`${example}\``, isForCallbacks, isForRetries];
  });
  return [aboutAllSettings, ...makeTable(["Header", "Meaning", "Example", "For callbacks", "For retries"], rows), ""];
}

const makeShapesSection = (): string[] => [
  ...["## Shapes", "", "What several answers are made of.", ""],
  ...Object.entries(document.components.schemas).flatMap(([name, schema]) => [`### ${name}`, ""].concat(makeFieldsTable(schema, "answer"))),
];

const aboutAllRefusals = `## Refusals

The body is always \`{"error": "…"}\`: what is wrong, where, and what to do. The status says which kind it is; the names are
those of this page. Any request can meet \`invalid\`, \`unauthorized\`, \`headers-too-large\` and \`stopping\`.
`;

function makeRefusalsSection(): string[] {
  const rows = Object.entries(errorCodes).map(([code, { status, meaning }]) => [String(status), `\`${code}\``, meaning]);
  return [aboutAllRefusals, ...makeTable(["Status", "Name", "Meaning"], rows), ""];
}

const formatCount = (value: number): string => value.toLocaleString("en");
const formatDays = (value: number): string => `${value / 86_400_000} days`;
const formatHours = (value: number): string => `${value / 3_600_000} hours`;
const formatSize = (bytes: number): string => (bytes % 2 ** 20 === 0 ? `${bytes / 2 ** 20} MiB` : `${bytes / 2 ** 10} KiB`);

const aboutLimits: { readonly [N in keyof typeof limits]: readonly [about: string, show: (value: number) => string] } = {
  messageBytes: ["Body of one message", formatSize],
  retries: ["Retries of one message", formatCount],
  delay: ["Delay, and how far ahead not-before may be", formatDays],
  timeout: ["Timeout of one attempt", formatHours],
  deduplicationWindow: ["Deduplication-Window: how long a repetition of a message is known", formatDays],
  labels: ["Labels of one message", formatCount],
  nameLength: [
    "Characters of a label, a deduplication id, the name of a queue, key, URL group or endpoint, or the id of a schedule",
    formatCount,
  ],
  urlLength: ["Characters of a URL", formatCount],
  hostLength: ["Characters of the host of a URL", formatCount],
  headerBytes: ["Headers that go out for one message, its callbacks included; and one setting", formatSize],
  callbackDepth: ["Callbacks of callbacks", formatCount],
  parallelism: ["Parallelism of a queue or a flow control key", formatCount],
  rate: ["Rate of a flow control key", formatCount],
  period: ["Period of a flow control key", formatDays],
  queues: ["Queues of an account, unless `WAYPOST_MAX_QUEUES` says otherwise", formatCount],
  groups: ["URL groups of an account", formatCount],
  endpoints: ["Endpoints of a URL group, or of one request that adds or removes some", formatCount],
  groupLength: ["Characters of all names and URLs of a URL group", formatCount],
  fanOutBytes: ["Bodies of a request, or of one firing of a schedule, to URL groups: one for each endpoint", formatSize],
  sources: ["Sources of an account", formatCount],
  tokens: ["Tokens of an account, besides its own two", formatCount],
  schedules: ["Schedules of an account", formatCount],
  steps: ["Steps in the history of a workflow run", formatCount],
  historyBytes: ["History of a workflow run, as it is sent", formatSize],
  invokeDepth: ["Workflow runs that were invoked by runs, one below the other", formatCount],
  notifications: ["Events that a workflow run keeps, because they came before it asked for them", formatCount],
  notificationBytes: ["Their bodies", formatSize],
  waiters: ["Waiting steps that one notification wakes", formatCount],
};

function makeLimitsSection(): string[] {
  const rows = Object.entries(aboutLimits).map(([name, [about, show]]) => [about, show(limits[name as keyof typeof limits])]);
  return [
    "## Limits",
    "",
    "What goes beyond is refused with 412 or 413, and a word on the limit.",
    "",
    ...makeTable(["Of", "At most"], rows),
    "",
  ];
}

function makeTable(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const formatRow = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll("|", "\\|").replace(/\s+/g, " ")).join(" | ")} |`;
  return [formatRow(head), `|${"---|".repeat(head.length)}`, ...rows.map(formatRow)];
}

function lowerFirst(sentence: string): string {
  return sentence.slice(0, 1).toLowerCase() + sentence.slice(1);
}

const path = join(import.meta.dirname, "../docs/reference.md");
const text = makeReference();

if (!process.argv.includes("--check")) writeFileSync(path, text);
else if (!existsSync(path) || readFileSync(path, "utf8") !== text) {
  console.error("docs/reference.md is not what the routes say. Run npm run reference, look at the difference, and commit it.");
  process.exitCode = 1;
}
