import type { FieldsOf } from "../../api/fields/field.ts";
import { actorFields } from "../../api/fields/actor.ts";
import { count, nullable, object, optional, text, texts, time } from "../../api/fields/field.ts";
import type { TokenNames } from "../../api/views/tokenNames.ts";
import { nameActor } from "../../api/views/tokenNames.ts";
import type { AuditEntry } from "../../engine/core/model/auditEntry.ts";

/** An entry of the audit log, and the names of tokens. */
type NamedEntry = AuditEntry & { tokenNames: TokenNames };

/** The fields of an entry of the audit log. */
export const entryFields: FieldsOf<NamedEntry> = {
  id: text("The id of the entry.", ({ id }) => id),
  time: time("When the change was made, in Unix milliseconds.", ({ time }) => time),
  action: text("The action, such as queue.delete.", ({ what }) => what),
  object: nullable(text)(
    "The name or id of the changed object. If the action changed several, the first one. null means the " +
      "account itself.",
    ({ object }) => object,
  ),
  objectName: optional(text)(
    "The name of the object, if it is a token that exists or was revoked lately.",
    ({ object, tokenNames }) => tokenNames.get(object ?? "") || null,
  ),
  count: optional(count)(
    "The number of changed objects. Present only for actions that can change several.",
    ({ count }) => count,
  ),
  fields: optional(texts)("The names of the changed fields or limits.", ({ fields }) => fields),
  by: object(actorFields)("The author of the change.", ({ by, tokenNames }) => nameActor(by, tokenNames)),
};
