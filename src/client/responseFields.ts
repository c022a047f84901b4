import { isObject } from "./terminal/fields.ts";

type FieldKind = "string" | "number" | "boolean" | "object" | "objects";

/**
 * The fields that a response must have: `one` if it is an object, `each` for every object if it is a list.
 * With both, it may be either.
 */
export type NeededFields = Readonly<Partial<Record<"one" | "each", Readonly<Record<string, FieldKind>>>>>;

/**
 * Returns why a response does not have the fields that a command needs, or null if it has them. A response
 * that lacks them comes from another program, such as a proxy, so it proves nothing.
 */
export function findMissing(result: unknown, { one, each }: NeededFields): string | null {
  if (Array.isArray(result) && each) {
    return result.map((item) => describeMissing(item, each)).find((missing) => missing !== null) ?? null;
  }
  return one ? describeMissing(result, one) : "it is not a list";
}

function describeMissing(value: unknown, needed: Readonly<Record<string, FieldKind>>): string | null {
  if (!isObject(value)) return value === null ? "it is empty" : "it is not an object";
  const missing = Object.entries(needed).find(([name, kind]) => !isOfKind(value[name], kind));
  return missing ? `it has no field "${missing[0]}"` : null;
}

const isOfKind = (value: unknown, kind: FieldKind): boolean =>
  kind === "object"
    ? isObject(value)
    : kind === "objects"
      ? Array.isArray(value) && value.every(isObject)
      : typeof value === kind;
