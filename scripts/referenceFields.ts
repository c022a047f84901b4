// The tables of fields in the reference, made of the schemas of the OpenAPI document.
import { makeTable, toAnchor } from "./markdown.ts";

/** The parts of a JSON schema that are used. */
export type Schema = {
  $ref?: string;
  type?: string | readonly string[];
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

type Field = { name: string; types: string[]; isRequired: boolean; descriptions: string[] };

/** Returns a table of the fields of a request or a response, or nothing if there are none. */
export function makeFieldsTable(schema: Schema, direction: "request" | "answer"): string[] {
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

/** Returns the fields of an object, including nested ones. Alternatives follow one another. */
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

/**
 * Returns the fields of alternatives. A field that only some of them have is not required. Its description
 * names the alternative it belongs to, if that has a name.
 */
function listAlternativeFields(alternatives: readonly Schema[], prefix: string): Field[] {
  const fields = alternatives.map((one) => listFields(one, prefix));
  const objects = fields.filter(({ length }) => length > 0);
  return fields.flatMap((own, at) => {
    const name = Object.values(alternatives[at]?.properties ?? {}).find(
      (field) => field.const !== undefined,
    )?.const;
    return own.map((field) => {
      if (objects.every((others) => others.some((other) => other.name === field.name))) return field;
      const descriptions =
        typeof name === "string" ? [`Only for \`${name}\`.`, ...field.descriptions] : field.descriptions;
      return Object.assign(field, { isRequired: field.isRequired && typeof name !== "string", descriptions });
    });
  });
}

const listAlternatives = ({ anyOf, oneOf }: Schema): readonly Schema[] => anyOf ?? oneOf ?? [];

const listDescriptions = (field: Schema): string[] =>
  [withDefault(field.description ?? "", field)].filter(Boolean);

/** Merges fields with the same name into one row. */
function mergeFields(fields: readonly Field[]): Field[] {
  const found = new Map<string, Field>();
  for (const field of fields) {
    const before = found.get(field.name);
    if (!before) found.set(field.name, field);
    else {
      const types = [...new Set([...before.types, ...field.types])];
      const descriptions = [...new Set([...before.descriptions, ...field.descriptions])];
      found.set(field.name, {
        name: field.name,
        types,
        descriptions,
        isRequired: before.isRequired && field.isRequired,
      });
    }
  }
  return [...found.values()];
}

/** Returns the type of a value, with links to named shapes. */
export function formatType(schema: Schema): string {
  const { $ref, type, const: constant, enum: options, items, additionalProperties } = schema;
  if ($ref) return linkTo($ref.slice($ref.lastIndexOf("/") + 1));
  if (constant !== undefined) return `\`${JSON.stringify(constant)}\``;
  if (options) return options.map((value) => `\`${JSON.stringify(value)}\``).join(" or ");
  if (items) return formatCollection("list", items);
  const alternatives = listAlternatives(schema);
  if (alternatives.length > 0) return [...new Set(alternatives.map(formatType))].join(" or ");
  if (typeof additionalProperties === "object" && !schema.properties)
    return formatCollection("map", additionalProperties);
  return type === undefined ? anything : [type].flat().join(" or ");
}

/** Returns the type of a list or a map: `list of string`, or `list of (string or object)`. */
function formatCollection(kind: "list" | "map", items: Schema): string {
  const of = formatType(items);
  if (of === anything) return kind === "map" ? "object" : kind;
  return `${kind} of ${of.includes(" or ") ? `(${of})` : of}`;
}

const anything = "anything";

const linkTo = (shape: string): string => `[${shape}](shapes.md${toAnchor(shape)})`;

/** Returns a description with the default of its field. */
export const withDefault = (about: string, { default: normally }: Schema): string =>
  [
    about,
    ["string", "number", "boolean"].includes(typeof normally) && normally !== ""
      ? `Default: \`${JSON.stringify(normally)}\`.`
      : "",
  ]
    .filter(Boolean)
    .join(" ");
