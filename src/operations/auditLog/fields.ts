import type { FieldsOf } from "../../api/fields/field.ts";
import { count, nullable, object, optional, text, texts, time, word } from "../../api/fields/field.ts";
import type { Actor, AuditEntry } from "../../engine/core/model/auditEntry.ts";
import { actorKinds } from "../../engine/core/model/auditEntry.ts";

const actorFields: FieldsOf<Actor> = {
  kind: word(actorKinds)(
    "How the request was authorized: by a token of the account, by its user name and password, by " +
      "the operator password, or on the command line. server: the server itself, " +
      "when it repaired its data.",
    ({ kind }) => kind,
  ),
  token: optional(text)("The token: main, or the id of a created token.", ({ token }) => token || null),
  user: optional(text)("The user name of the request.", ({ name }) => name || null),
  address: nullable(text)(
    "The IP address of the client. null on the command line, and for the server itself.",
    ({ address }) => address,
  ),
};

/** The fields of an entry of the audit log. */
export const entryFields: FieldsOf<AuditEntry> = {
  id: text("The id of the entry.", ({ id }) => id),
  time: time("When the change was made, in Unix milliseconds.", ({ time }) => time),
  action: text("The action, such as queue.delete.", ({ what }) => what),
  object: nullable(text)(
    "The name or id of the changed object. If the action changed several, the first one. null means the " +
      "account itself.",
    ({ object }) => object,
  ),
  count: optional(count)(
    "The number of changed objects. Present only for actions that can change several.",
    ({ count }) => count,
  ),
  fields: optional(texts)("The names of the changed fields or limits.", ({ fields }) => fields),
  by: object(actorFields)("The author of the change.", ({ by }) => by),
};
