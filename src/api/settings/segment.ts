import { Refusal } from "../../engine/core/values/errors.ts";
import { limits } from "../../engine/core/values/limits.ts";
import { decodeHeaderText } from "./grammar.ts";
import { isValidKey } from "./settingTexts.ts";
import { shorten } from "../http/target.ts";

/**
 * Returns the name of a run or an event, which its user chose freely. The name is decoded, because clients
 * return the id of a run as they read it from a header, in Latin-1. Throws `Refusal`, which names `field`,
 * for control characters and lone surrogates: no database keeps them unchanged.
 */
export function parseSegment(field: string, segment: string): string {
  const text = decodeHeaderText(segment);
  if (isValidKey(text)) return text;
  const allowed = `use 1 to ${limits.nameLength} characters without control characters`;
  throw new Refusal("invalid", `${field}: ${JSON.stringify(shorten(text))} is not a valid name; ${allowed}`);
}
