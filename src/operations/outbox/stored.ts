import { audited, noteNamed } from "../../engine/core/commands/audit.ts";
import { accountChange, internal } from "../../engine/core/commands/kinds.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import type { StoredOperation } from "../../engine/store/layout/storedOperation.ts";
import { keyOfAccountRow } from "../../engine/store/layout/storedOperation.ts";
import type { StorageReads } from "../../engine/store/layout/storageReads.ts";
import { describeWorkTable, workTableSchema } from "../../engine/store/layout/workTable.ts";
import { deleteOutbox, noteOutbox, publishRows, setOutbox, takeOutbox } from "./commands.ts";
import type { OutboxSetting, OutboxState } from "./outbox.ts";
import { maxOutboxes } from "./outbox.ts";

declare module "../../engine/core/decision/command.ts" {
  interface Rows {
    outboxes: OutboxState;
  }
}
declare module "../../engine/core/model/accountTerms.ts" {
  interface OperationTerms {
    /** The databases whose rows become messages. Absent: there are none. */
    outboxes?: readonly OutboxSetting[];
  }
}

/** Outboxes: rows of the databases of users become messages. */
export const outbox = {
  schema: workTableSchema("outboxes"),
  tables: { outboxes: describeWorkTable<OutboxState>("outboxes") },
  keys: { outboxes: keyOfAccountRow },
  commands: {
    setOutbox: accountChange(audited(setOutbox, noteNamed("outbox.set"))),
    deleteOutbox: accountChange(audited(deleteOutbox, noteNamed("outbox.delete"))),
    takeOutbox: internal(takeOutbox),
    noteOutbox: internal(noteOutbox),
    publishRows: internal(publishRows),
  },
  createQueries: (reads: StorageReads) => ({
    /** Returns the states of the outboxes of an account. */
    outboxes: (account: AccountId): Promise<readonly OutboxState[]> =>
      reads.range("outboxes", { account, limit: maxOutboxes + 1 }),
    /** Returns the states of outboxes of all accounts. */
    allOutboxes: (now: Millis, limit: number): Promise<readonly OutboxState[]> =>
      reads.dueWork("outboxes", now, limit),
  }),
  secretTerms: ["outboxes"],
} satisfies StoredOperation;
