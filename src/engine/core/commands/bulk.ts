import type { BulkInput } from "../bulk/actions.ts";
import { bulkActions } from "../bulk/actions.ts";
import type { BulkOutcome } from "../bulk/entries.ts";
import { readEntryName } from "../bulk/entries.ts";
import type { Decision } from "../decision/command.ts";
import type { AuditNote } from "../model/auditEntry.ts";

/** Does an action with the entries of one transaction. Throws `Refusal` if that concerns one of them. */
export const bulk: Decision<BulkInput, BulkOutcome> = {
  decide: (input, draft, moment) => bulkActions[input.action].decide(input, draft, moment),
};

/** Makes the audit note of a bulk action, or null if it changed nothing. */
export function noteBulk({ action, entries }: BulkInput, { done }: BulkOutcome): AuditNote | null {
  const [first] = entries;
  if (done === 0 || !first) return null;
  const { word, together } = bulkActions[action];
  return { what: word, object: readEntryName(first), ...(together > 1 && { count: done }) };
}
