import { actorKinds } from "../../engine/core/model/auditEntry.ts";
import type { Actor } from "../../engine/core/model/auditEntry.ts";
import type { FieldsOf } from "./field.ts";
import { nullable, optional, text, word } from "./field.ts";

/** The caller of a request, with the name of its token. */
export type NamedActor = Actor & { tokenName?: string };

/** The fields of the caller of a request. */
export const actorFields: FieldsOf<NamedActor> = {
  kind: word(actorKinds)(
    "How the request was authorized: by a token of the account, by its user name and password, by " +
      "the operator password, or on the command line. server: the server itself, " +
      "when it repaired its data.",
    ({ kind }) => kind,
  ),
  token: optional(text)("The token: main, or the id of a created token.", ({ token }) => token || null),
  tokenName: optional(text)(
    "The name of a created token, if it exists or was revoked lately.",
    ({ tokenName }) => tokenName,
  ),
  user: optional(text)("The user name of the request.", ({ name }) => name || null),
  address: nullable(text)(
    "The IP address of the client. null on the command line, and for the server itself.",
    ({ address }) => address,
  ),
};
