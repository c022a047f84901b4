import type { FieldsOf } from "../../api/fields/field.ts";
import { longText, nullable, optional, text, time, word } from "../../api/fields/field.ts";
import { searchedParts } from "../../engine/core/search/textSearch.ts";
import type { FoundThing } from "./found.ts";
import { foundKinds } from "./found.ts";

/** The fields of something that a search found. */
export const foundFields = {
  kind: word(foundKinds)("The kind of thing.", ({ kind }) => kind),
  id: text("Its id, or its name.", ({ id }) => id),
  part: word(searchedParts)(
    "Where it contains the text. id: its id or name. label: a label, or the name of a source. " +
      "url: its URL. error: why it failed. response: the body of the last response. " +
      "body: its body or initial payload.",
    ({ part }) => part,
    "IN",
  ),
  excerpt: longText("The text with a few words around it.", ({ excerpt }) => excerpt, "TEXT"),
  time: nullable(time)(
    "When it was created, or when it failed if it is a dead letter, in Unix milliseconds.",
    ({ at }) => at,
  ),
  url: optional(longText)("Its destination, if it has one.", ({ url }) => url),
} satisfies FieldsOf<FoundThing>;
