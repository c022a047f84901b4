import type { Token } from "../../engine/core/model/rights.ts";
import { verbs } from "../../engine/core/model/rights.ts";
import type { FieldsOf } from "./field.ts";
import { optional, text, texts, time, words } from "./field.ts";

/** The fields of a token, without its secret text. */
export const tokenFields: FieldsOf<Token> = {
  tokenId: text("The id of the token.", ({ id }) => id),
  name: text("The name of the token. Empty if it has none.", ({ name }) => name),
  verbs: words(verbs)(
    "The rights of the token. publish: publish messages. read: requests that change nothing. manage: all " +
      "other requests.",
    ({ verbs }) => verbs,
  ),
  destinations: texts(
    "Where the token may publish to. Empty means everywhere.",
    ({ destinations }) => destinations,
  ),
  createdAt: time("When the token was created, in Unix milliseconds.", ({ createdAt }) => createdAt),
  expiresAt: optional(time)(
    "When the token expires, in Unix milliseconds. Absent if it never does.",
    ({ expiresAt }) => expiresAt,
  ),
  usedAt: optional(time)(
    "When the token was last used, in Unix milliseconds, to the minute. Absent if it never was.",
    ({ usedAt }) => usedAt,
  ),
  madeBy: optional(text)(
    "The id of the token that created this one. Absent if it was created with the main token or by the " +
      "account.",
    ({ madeBy }) => madeBy,
  ),
};
