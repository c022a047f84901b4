import { z } from "zod";
import { Refusal } from "../../engine/core/values/errors.ts";
import { describeIssue } from "./schemaErrors.ts";
import { findNearest } from "../../engine/core/values/nearest.ts";
import { readParameters } from "./target.ts";

/** The maximum number of values of one filter. Each row is compared with all of them. */
const maxValues = 1_000;
const longestValue = 16 * 1024;

const text = z.string().min(1, "is empty").max(longestValue, `is longer than ${longestValue} characters`);

/** A parameter that is given once. The API document shows the inner schema. */
const once = <T extends z.ZodType<unknown, string>>(inner: T) =>
  z
    .array(text)
    .transform((values, context) => {
      if (new Set(values).size > 1)
        context.addIssue({ code: "custom", message: "is given more than once, with different values" });
      return values[0] ?? "";
    })
    .pipe(inner);

/** A whole number, as text. */
const digits = z
  .string()
  .regex(/^\d{1,15}$/, "is not a whole number")
  .transform(Number);

/** One text. */
export const singleText = () => once(z.string());

/** One of several words. */
export const choice = <const T extends readonly string[]>(words: T) =>
  once(z.string().pipe(z.enum(words, { error: `must be one of ${words.join(", ")}` })));

/**
 * The size of a page or of a portion, if a cursor continues it. A larger number is reduced to `max`, with a
 * warning.
 */
export const count = ({
  max,
  defaultCount,
  about = "",
}: {
  max: number;
  defaultCount: number;
  about?: string;
}) =>
  once(
    digits.pipe(
      z
        .int()
        .min(1, "must be at least 1")
        .overwrite((requested) => Math.min(requested, max)),
    ),
  )
    .default(defaultCount)
    .describe(`Number of entries, from 1 to ${max}; a larger number means ${max}.${about && ` ${about}`}`);

/** The size of a portion without a cursor. A number above `max` is refused. */
export const boundedCount = ({ max, defaultCount }: { max: number; defaultCount: number }) =>
  once(digits.pipe(z.int().min(1, "must be at least 1").max(max, `must be at most ${max}`))).default(
    defaultCount,
  );

/** A whole number of at least 0. */
export const wholeNumber = () => once(digits.pipe(z.int()));

/** A whole number of at least 1. */
export const positiveNumber = () => once(digits.pipe(z.int().min(1, "must be at least 1")));

/** A time in Unix milliseconds. */
export const timestamp = () => once(digits.pipe(z.int().min(0).max(8_640_000_000_000_000)));

/**
 * One or more texts: repeated, or in one value with commas between them. A comma separates only before
 * `startingWith`, because the values may contain commas as well.
 */
export const textList = (startingWith = "") =>
  z
    .array(text)
    .transform((values, context) => {
      const comma = new RegExp(`,(?=${startingWith})`);
      const all = values.flatMap((value) => value.split(comma)).map((value) => value.trim());
      if (all.includes("")) context.addIssue({ code: "custom", message: "has an empty value" });
      return all;
    })
    .pipe(z.array(z.string()).max(maxValues, `has more than ${maxValues} values`));

/**
 * One or more texts, each in its own parameter. A comma is part of the text. Use it for values that may
 * contain commas, if a request must not affect more than intended.
 */
export const wholeTextList = () => z.array(text).max(maxValues, `has more than ${maxValues} values`);

/** One or more whole numbers, like `textList`. */
export const numberList = () => textList().pipe(z.array(digits.pipe(z.int())));

/**
 * Returns the parameters of a query and the fields of a JSON body together.
 * Throws `Refusal` if a field of the body is invalid or differs from the query.
 */
export function mergeParameters(query: string | null, body: unknown): ReadonlyMap<string, string[]> {
  const fields = new Map<string, string[]>();
  for (const { name, value } of readParameters(query)) fields.set(name, [...(fields.get(name) ?? []), value]);
  if (typeof body !== "object" || body === null || Array.isArray(body))
    throw new Refusal("invalid", "body: not a JSON object");
  for (const [name, value] of Object.entries(body)) {
    const values: unknown[] = Array.isArray(value) ? value : [value];
    if (values.length === 0)
      throw new Refusal("invalid", `${name.slice(0, 200)}: is an empty list; give at least one value`);
    if (
      !values.every((one) => typeof one === "string" || typeof one === "number" || typeof one === "boolean")
    ) {
      throw new Refusal(
        "invalid",
        `${name.slice(0, 200)}: is not a string, a number, true, false or a list of these`,
      );
    }
    const texts = values.map(String);
    const inQuery = fields.get(name);
    if (inQuery && inQuery.join() !== texts.join())
      throw new Refusal(
        "invalid",
        `${name.slice(0, 200)}: given in the query and in the body with different values; remove one`,
      );
    fields.set(name, texts);
  }
  return fields;
}

/** Checks fields against a schema. Throws `Refusal` with the name of an unknown or invalid field. */
export function readFields(schema: z.ZodObject, fields: ReadonlyMap<string, string[]>): unknown {
  const known = Object.keys(schema.shape);
  const unknownName = [...fields.keys()].find((name) => !known.includes(name));
  if (unknownName !== undefined) throw new Refusal("invalid", describeUnknownField(unknownName, known));
  const result = schema.safeParse(Object.fromEntries(fields), { error: describeIssue });
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new Refusal("invalid", `${String(issue?.path[0] ?? "query")}: ${issue?.message ?? "is not valid"}`);
}

function describeUnknownField(name: string, known: readonly string[]): string {
  const suggestion = findNearest(name, known);
  const advice =
    suggestion !== null
      ? `did you mean ${suggestion}?`
      : known.length > 0
        ? `use ${known.join(", ")}`
        : "this request takes none";
  return `${name.slice(0, 200)}: unknown parameter; ${advice}`;
}
