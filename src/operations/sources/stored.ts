import { audited, noteChange, noteNamed } from "../../engine/core/commands/audit.ts";
import { internal } from "../../engine/core/commands/kinds.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import type { StorageReads } from "../../engine/store/layout/storageReads.ts";
import type { StoredOperation } from "../../engine/store/layout/storedOperation.ts";
import { keyOfAccountRow } from "../../engine/store/layout/storedOperation.ts";
import { workTableSchema } from "../../engine/store/layout/workTable.ts";
import { changeSource, createSource, deleteSource, keepRejection, noteAcceptance } from "./commands.ts";
import type { KeptCall } from "./keptCall.ts";
import { keptCallKey } from "./keptCall.ts";
import { removeKeptCalls, sendKeptCall } from "./keptCommands.ts";
import { keptCallTable } from "./keptTable.ts";

declare module "../../engine/core/decision/command.ts" {
  interface Rows {
    keptCalls: KeptCall;
  }
}

/** Webhooks of other services, verified and published. */
export const sources = {
  schema: workTableSchema("kept_calls"),
  tables: { keptCalls: keptCallTable },
  keys: { keptCalls: keyOfAccountRow },
  commands: {
    createSource: audited(createSource, (_, { id }) => ({ what: "source.create", object: id })),
    changeSource: audited(changeSource, noteChange("source.change")),
    deleteSource: audited(deleteSource, noteNamed("source.delete")),
    keepRejection,
    sendKeptCall: audited(sendKeptCall, noteNamed("source.send")),
    removeKeptCalls: internal(removeKeptCalls),
    noteAcceptance: internal(noteAcceptance),
  },
  createQueries: (reads: StorageReads) => ({
    /** Returns a rejected call that is kept whole, or null. */
    keptCall: async (account: AccountId, sourceId: string, number: number): Promise<KeptCall | null> =>
      (await reads.rows("keptCalls", [keptCallKey({ account, id: sourceId }, number)]))[0] ?? null,
    /** Returns kept calls of all accounts that end until a time, those that end first. */
    dueKeptCalls: (until: Millis, limit: number): Promise<readonly KeptCall[]> =>
      reads.dueWork("keptCalls", until, limit),
  }),
  secretTerms: [],
} satisfies StoredOperation;
