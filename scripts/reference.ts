// Writes docs/reference.md from the table of routes and the table of settings. With --check it writes nothing, and fails
// where the file differs.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { openApi } from "../src/api/server/openapi.ts";
import type { Route } from "../src/api/route/route.ts";
import { fieldsInBody } from "../src/api/route/route.ts";
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
function reference(): string {
  const tags = [...new Set(routes.map(({ tag }) => tag))];
  const parts = [
    opening,
    ...tags.map((tag) => `- [${tag}](${anchorOf(tag)})`),
    ...["Settings", "Shapes", "Refusals", "Limits"].map((title) => `- [${title}](${anchorOf(title)})`),
    "",
    ...tags.flatMap((tag) => sectionOf(tag)),
    ...settingsSection(),
    ...shapesSection(),
    ...refusalsSection(),
    ...limitsSection(),
  ];
  return `${parts
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

function sectionOf(tag: string): string[] {
  const own = routes.filter((route) => route.tag === tag);
  const list = own.map((route) => [`[\`${nameOf(route)}\`](${anchorOf(nameOf(route))})`, route.summary]);
  return [`## ${tag}`, "", ...table(["Request", "What it does"], list), "", ...own.flatMap(routeText)];
}

const nameOf = ({ method, path }: Route): string => `${method} ${path}`;

/** The anchor that is made of a heading where Markdown is shown. */
const anchorOf = (heading: string): string =>
  `#${heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, "")
    .replaceAll(" ", "-")}`;

function routeText(route: Route): string[] {
  const operation = document.paths[route.path]?.[route.method.toLowerCase()];
  if (!operation) throw new Error(`${nameOf(route)} is not in the document`);
  const about = [`${route.summary}.`, route.about, aboutAccess[route.access]].filter(Boolean).join(" ");
  return [
    ...[`### \`${nameOf(route)}\``, "", about, ""],
    ...parametersText(operation),
    ...(route.settings ? [aboutSettings[route.settings], ""] : []),
    ...(operation.requestBody ? bodyText(route, operation.requestBody) : []),
    ...Object.entries(operation.responses).flatMap(([status, answer]) => (answer.$ref ? [] : answerText(route, status, answer))),
    ...refusalsText(route, operation),
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

function parametersText({ parameters }: Operation): string[] {
  const own = parameters.filter(({ $ref }) => $ref === undefined);
  if (own.length === 0) return [];
  const rows = own.map(({ name, in: place, description, schema }) => [
    `\`${name}\``,
    place,
    typeOf(schema),
    withDefault(description, schema),
  ]);
  return [...table(["Parameter", "In", "Type", "Meaning"], rows), ""];
}

const withDefault = (about: string, { default: normally }: Schema): string =>
  [about, ["string", "number", "boolean"].includes(typeof normally) && normally !== "" ? `Default: \`${JSON.stringify(normally)}\`.` : ""]
    .filter(Boolean)
    .join(" ");

function bodyText(route: Route, { description, content, required }: Content): string[] {
  const [[type, { schema }] = ["", { schema: {} }]] = Object.entries(content);
  const kind = type === "*/*" ? "of any type" : `\`${type}\``;
  const most = route.body && `, ${sizeOf(route.body.mostBytes)} at most`;
  const title = `Body, ${kind}${required ? "" : ", optional"}${most ?? ""}: ${lowered(description)}`;
  // What the query takes has been told already.
  return [title, "", ...(fieldsInBody(route) ? [] : fieldsTable(schema, "request"))];
}

const told = new Map<string, string>();

/** The table of the fields of an answer, or where the same one stands already. */
function answerText(route: Route, status: string, { description, content }: Content): string[] {
  const [{ schema } = { schema: {} }] = Object.values(content);
  const title = `**${status}** ${description}`;
  const whole = schema.type === "object" || schema.properties || schema.anyOf ? "" : ` The answer: ${typeOf(schema)}.`;
  const rows = fieldsTable(schema, "answer");
  const before = told.get(rows.join("\n"));
  if (rows.length > 6 && before !== undefined) {
    const where = before === nameOf(route) ? "above" : `[\`${before}\`](${anchorOf(before)})`;
    return [`${title}${whole} Its fields are those of ${where}.`, ""];
  }
  told.set(rows.join("\n"), nameOf(route));
  return [`${title}${whole}`, "", ...rows];
}

const ofAnyRequest: ReadonlySet<ErrorCode> = new Set(["invalid", "unauthorized", "headers-too-large", "stopping"]);

function refusalsText({ refusals }: Route, { responses }: Operation): string[] {
  const named = Object.values(responses).flatMap(({ $ref }) => ($ref ? [$ref.slice($ref.lastIndexOf("/") + 1) as ErrorCode] : []));
  const codes = [...new Set([...named, ...refusals])].filter((code) => !ofAnyRequest.has(code));
  const sorted = codes.toSorted((one, other) => errorCodes[one].status - errorCodes[other].status);
  return sorted.length === 0 ? [] : [`Refusals: ${sorted.map((code) => `${errorCodes[code].status} \`${code}\``).join(", ")}.`, ""];
}

type Field = { name: string; types: string[]; isRequired: boolean; abouts: string[] };

function fieldsTable(schema: Schema, of: "request" | "answer"): string[] {
  const fields = merged(fieldsOf(schema, ""));
  if (fields.length === 0) return [];
  const mark = ({ isRequired }: Field): string =>
    of === "request" ? (isRequired ? ", required" : "") : isRequired ? "" : ", may be absent";
  const rows = fields.map((field) => [`\`${field.name}\``, `${field.types.join(" or ")}${mark(field)}`, field.abouts.join(" ")]);
  return [...table(["Field", "Type", "Meaning"], rows), ""];
}

/** The fields of an object, and of what is in it. Those of alternatives stand one after another. */
function fieldsOf(schema: Schema, prefix: string): Field[] {
  const { properties = {}, required = [], items } = schema;
  if (items) return fieldsOf(items, `${prefix === "" ? "" : prefix.slice(0, -1)}[].`);
  const own = Object.entries(properties).flatMap(([name, field]) => {
    const row = { name: `${prefix}${name}`, types: [typeOf(field)], isRequired: required.includes(name), abouts: aboutsOf(field) };
    return [row].concat(fieldsOf(field, `${prefix}${name}.`));
  });
  return own.concat(fieldsOfAlternatives(alternativesOf(schema), prefix));
}

/** What only some of the alternatives have is not required, and says which one it belongs to, where that has a name. */
function fieldsOfAlternatives(alternatives: readonly Schema[], prefix: string): Field[] {
  const fields = alternatives.map((one) => fieldsOf(one, prefix));
  const objects = fields.filter(({ length }) => length > 0);
  return fields.flatMap((own, at) => {
    const name = Object.values(alternatives[at]?.properties ?? {}).find((field) => field.const !== undefined)?.const;
    return own.map((field) => {
      if (objects.every((others) => others.some((other) => other.name === field.name))) return field;
      const abouts = typeof name === "string" ? [`Of \`${name}\`.`, ...field.abouts] : field.abouts;
      return Object.assign(field, { isRequired: field.isRequired && typeof name !== "string", abouts });
    });
  });
}

const alternativesOf = ({ anyOf, oneOf }: Schema): readonly Schema[] => anyOf ?? oneOf ?? [];

const aboutsOf = (field: Schema): string[] => [withDefault(field.description ?? "", field)].filter(Boolean);

/** Fields of the same name in one row. */
function merged(fields: readonly Field[]): Field[] {
  const found = new Map<string, Field>();
  for (const field of fields) {
    const before = found.get(field.name);
    if (!before) found.set(field.name, field);
    else {
      const types = [...new Set([...before.types, ...field.types])];
      const abouts = [...new Set([...before.abouts, ...field.abouts])];
      found.set(field.name, { name: field.name, types, abouts, isRequired: before.isRequired && field.isRequired });
    }
  }
  return [...found.values()];
}

function typeOf(schema: Schema): string {
  const { $ref, type, const: only, enum: some, items, additionalProperties } = schema;
  if ($ref) return linkTo($ref.slice($ref.lastIndexOf("/") + 1));
  if (only !== undefined) return `\`${JSON.stringify(only)}\``;
  if (some) return some.map((value) => `\`${JSON.stringify(value)}\``).join(" or ");
  if (items) return `list of ${typeOf(items)}`;
  const alternatives = alternativesOf(schema);
  if (alternatives.length > 0) return [...new Set(alternatives.map(typeOf))].join(" or ");
  if (typeof additionalProperties === "object" && !schema.properties) return `map of ${typeOf(additionalProperties)}`;
  return type ?? "anything";
}

const linkTo = (shape: string): string => `[${shape}](${anchorOf(shape)})`;

const aboutAllSettings = `## Settings

Of a message: a header, or the query parameter of the same name in lower case (\`svc-retries=5\`). The header wins. A URL
group has defaults below both. An unknown setting of this brand is refused; one of the other brand is ignored, and named in
the response header \`Waypost-Ignored\`.

Those for callbacks are also there as \`Svc-Callback-<Name>\` and \`Svc-Failure-Callback-<Name>\`. \`Svc-Forward-<Name>\`,
\`Svc-Callback-Forward-<Name>\` and \`Svc-Failure-Callback-Forward-<Name>\` give a header that is delivered as \`<Name>\`.
`;

function settingsSection(): string[] {
  const rows = Object.entries(settingRows).map(([name, { about, example, forCallbacks, forRetries }]) => {
    const [isForCallbacks, isForRetries] = [forCallbacks === true ? "yes" : "", forRetries === true ? "yes" : ""];
    return [`\`${canonicalName(`Svc-${name}`)}\``, about, `\`${example}\``, isForCallbacks, isForRetries];
  });
  return [aboutAllSettings, ...table(["Header", "Meaning", "Example", "For callbacks", "For retries"], rows), ""];
}

const shapesSection = (): string[] => [
  ...["## Shapes", "", "What several answers are made of.", ""],
  ...Object.entries(document.components.schemas).flatMap(([name, schema]) => [`### ${name}`, ""].concat(fieldsTable(schema, "answer"))),
];

const aboutAllRefusals = `## Refusals

The body is always \`{"error": "…"}\`: what is wrong, where, and what to do. The status says which kind it is; the names are
those of this page. Any request can meet \`invalid\`, \`unauthorized\`, \`headers-too-large\` and \`stopping\`.
`;

function refusalsSection(): string[] {
  const rows = Object.entries(errorCodes).map(([code, { status, meaning }]) => [String(status), `\`${code}\``, meaning]);
  return [aboutAllRefusals, ...table(["Status", "Name", "Meaning"], rows), ""];
}

const count = (value: number): string => value.toLocaleString("en");
const days = (value: number): string => `${value / 86_400_000} days`;
const hours = (value: number): string => `${value / 3_600_000} hours`;
const sizeOf = (bytes: number): string => (bytes % 2 ** 20 === 0 ? `${bytes / 2 ** 20} MiB` : `${bytes / 2 ** 10} KiB`);

const aboutLimits: { readonly [N in keyof typeof limits]: readonly [about: string, show: (value: number) => string] } = {
  messageBytes: ["Body of one message", sizeOf],
  retries: ["Retries of one message", count],
  delay: ["Delay, and how far ahead not-before may be", days],
  timeout: ["Timeout of one attempt", hours],
  deduplicationWindow: ["Deduplication-Window: how long a repetition of a message is known", days],
  labels: ["Labels of one message", count],
  nameLength: [
    "Characters of a label, a deduplication id, the name of a queue, key, URL group or endpoint, or the id of a schedule",
    count,
  ],
  urlLength: ["Characters of a URL", count],
  hostLength: ["Characters of the host of a URL", count],
  headerBytes: ["Headers that go out for one message, its callbacks included; and one setting", sizeOf],
  callbackDepth: ["Callbacks of callbacks", count],
  parallelism: ["Parallelism of a queue or a flow control key", count],
  rate: ["Rate of a flow control key", count],
  period: ["Period of a flow control key", days],
  queues: ["Queues of an account, unless `WAYPOST_MAX_QUEUES` says otherwise", count],
  groups: ["URL groups of an account", count],
  endpoints: ["Endpoints of a URL group, or of one request that adds or removes some", count],
  groupLength: ["Characters of all names and URLs of a URL group", count],
  fanOutBytes: ["Bodies of a request, or of one firing of a schedule, to URL groups: one for each endpoint", sizeOf],
  sources: ["Sources of an account", count],
  tokens: ["Tokens of an account, besides its own two", count],
  schedules: ["Schedules of an account", count],
  steps: ["Steps in the history of a workflow run", count],
  historyBytes: ["History of a workflow run, as it is sent", sizeOf],
  invokeDepth: ["Workflow runs that were invoked by runs, one below the other", count],
  notifications: ["Events that a workflow run keeps, because they came before it asked for them", count],
  notificationBytes: ["Their bodies", sizeOf],
  waiters: ["Waiting steps that one notification wakes", count],
};

function limitsSection(): string[] {
  const rows = Object.entries(aboutLimits).map(([name, [about, show]]) => [about, show(limits[name as keyof typeof limits])]);
  return [
    "## Limits",
    "",
    "What goes beyond is refused with 412 or 413, and a word on the limit.",
    "",
    ...table(["Of", "At most"], rows),
    "",
  ];
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll("|", "\\|").replace(/\s+/g, " ")).join(" | ")} |`;
  return [line(head), `|${"---|".repeat(head.length)}`, ...rows.map(line)];
}

function lowered(sentence: string): string {
  return sentence.slice(0, 1).toLowerCase() + sentence.slice(1);
}

const path = join(import.meta.dirname, "../docs/reference.md");
const text = reference();

if (!process.argv.includes("--check")) writeFileSync(path, text);
else if (!existsSync(path) || readFileSync(path, "utf8") !== text) {
  console.error("docs/reference.md is not what the routes say. Run npm run reference, look at the difference, and commit it.");
  process.exitCode = 1;
}
