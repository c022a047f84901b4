import { Refusal } from "../../core/values/errors.ts";
import { limits } from "../../core/values/limits.ts";
import { decodeHeaderText } from "./grammar.ts";
import { isValidKey } from "./table.ts";
import { shorten } from "../http/target.ts";

/**
 * Checks a name that its user chose freely, as that of a run or an event, and answers it. Throws `Refusal`; `field` is
 * named in it. No database keeps control characters and halves of characters as they are. Clients give back the id of a run
 * as they read it from a header, in latin 1.
 */
export function checkSegment(field: string, written: string): string {
  const text = decodeHeaderText(written);
  if (isValidKey(text)) return text;
  const allowed = `1 to ${limits.nameLength} characters, none of them a control character`;
  throw new Refusal("invalid", `${field}: ${JSON.stringify(shorten(text))} is not possible; ${allowed}`);
}
