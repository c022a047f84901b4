import { audited, noteChange, noteNamed } from "../../engine/core/commands/audit.ts";
import { internal } from "../../engine/core/commands/kinds.ts";
import type { StoredOperation } from "../../engine/store/layout/storedOperation.ts";
import { nothingStored } from "../../engine/store/layout/storedOperation.ts";
import { changeSource, createSource, deleteSource, keepRejection, noteAcceptance } from "./commands.ts";

/** Webhooks of other services, verified and published. */
export const sources = {
  ...nothingStored,
  commands: {
    createSource: audited(createSource, (_, { id }) => ({ what: "source.create", object: id })),
    changeSource: audited(changeSource, noteChange("source.change")),
    deleteSource: audited(deleteSource, noteNamed("source.delete")),
    keepRejection,
    noteAcceptance: internal(noteAcceptance),
  },
} satisfies StoredOperation;
