import { z } from "zod";
import { Refusal } from "../../engine/core/values/errors.ts";
import { describeIssue } from "../http/schemaErrors.ts";
import { readSettingsJson } from "../http/json.ts";
import type { IncomingRequest } from "./route.ts";

/**
 * Returns the JSON object in a body, checked against a schema. Throws `Refusal` with the name of the invalid
 * field. The refusal never contains a value, which may be a secret.
 */
export function readObject<T extends z.ZodType>(
  schema: T,
  { body }: Pick<IncomingRequest, "body">,
): z.output<T> {
  if (body.length > 0) return parseObject(schema, readSettingsJson(body), "body");
  throw new Refusal("invalid", `body: missing; give a JSON object with ${listFields(schema)}`);
}

/**
 * Returns a JSON value checked against a schema. Throws `Refusal` like `readObject`. `whole` names the value
 * in the refusal if no single field is invalid.
 */
export function parseObject<T extends z.ZodType>(schema: T, value: unknown, whole: string): z.output<T> {
  const result = schema.safeParse(value, { error: describeIssue });
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  const unknownKeys = issue?.code === "unrecognized_keys" ? issue.keys.slice(0, 1) : [];
  const path = [...(issue?.path ?? []), ...unknownKeys].join(".");
  if (path === "") throw new Refusal("invalid", `${whole}: is not a JSON object`);
  const known = issue?.path.length === 0 ? `; use ${listFields(schema)}` : "";
  const problem = unknownKeys.length > 0 ? `unknown field${known}` : (issue?.message ?? "is not valid");
  throw new Refusal("invalid", `${path.slice(0, 200)}: ${problem}`);
}

const listFields = (schema: z.ZodType): string =>
  schema instanceof z.ZodObject ? Object.keys(schema.shape).join(", ") : "fields";
