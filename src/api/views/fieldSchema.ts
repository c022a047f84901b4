import { z } from "zod";
import type { Field, Shape } from "../fields/field.ts";
import { waitReasonSchema } from "./waitReasonSchema.ts";

/** Returns the schema of a resource, from which its documentation follows. */
export const toSchema = <Name extends string>(
  fields: Readonly<Record<Name, Field<never>>>,
): z.ZodObject<Record<Name, z.ZodType>> =>
  z.object(
    Object.fromEntries(
      Object.entries<Field<never>>(fields).map(([name, field]) => [name, toFieldSchema(field)]),
    ) as Record<Name, z.ZodType>,
  );

function toFieldSchema({ shape, isOptional, about }: Field<never>): z.ZodType {
  const schema = shape.isNullable ? toShapeSchema(shape).nullable() : toShapeSchema(shape);
  const shown = isOptional ? schema.optional() : schema;
  return about === "" ? shown : shown.describe(about);
}

function toShapeSchema(shape: Shape): z.ZodType {
  switch (shape.kind) {
    case "text":
      return z.string();
    case "flag":
      return z.boolean();
    case "mark":
      return z.literal(true);
    case "number":
      return z.number();
    case "time":
      return z.int();
    case "integer":
      return z
        .int()
        .min(shape.min ?? Number.MIN_SAFE_INTEGER)
        .max(shape.max ?? Number.MAX_SAFE_INTEGER);
    case "texts":
      return z.array(z.string());
    case "word":
      return toWordSchema(shape.of);
    case "words":
      return z.array(toWordSchema(shape.of));
    case "wordMap":
      return z.record(z.string(), toWordSchema(shape.of));
    case "times":
      return z.array(z.int());
    case "counts":
      return z.array(z.int().min(0));
    case "headers":
      return z.record(z.string(), z.array(z.string()));
    case "settings":
      return z.record(z.string(), z.union([z.string(), z.array(z.string())]));
    case "reason":
      return waitReasonSchema;
    case "reasons":
      return z.array(waitReasonSchema);
    case "object":
      return toSchema(shape.of);
    case "list":
      return z.array(toSchema(shape.of));
  }
}

const toWordSchema = (words: readonly string[]): z.ZodType => {
  const [only = "", ...others] = words;
  return others.length === 0 ? z.literal(only) : z.enum(words);
};
