import type { NotDone } from "../../engine/core/values/errors.ts";
import type { FieldsOf } from "./field.ts";
import { text } from "./field.ts";

/** The fields of an object that a bulk action did not change. */
export const notDoneFields: FieldsOf<NotDone> = {
  id: text("The id, as the request gave it or as it was found.", ({ id }) => id),
  reason: text("Why the action was not possible.", ({ reason }) => reason),
};
