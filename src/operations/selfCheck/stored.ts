import { audited } from "../../engine/core/commands/audit.ts";
import { internal } from "../../engine/core/commands/kinds.ts";
import type { StorageReads } from "../../engine/store/layout/storageReads.ts";
import type { StoredOperation } from "../../engine/store/layout/storedOperation.ts";
import { nothingStored } from "../../engine/store/layout/storedOperation.ts";
import { repair } from "./commands.ts";
import type { SuspectPage, SuspectRange } from "./suspects.ts";
import { findSuspects } from "./suspects.ts";

/** Finds work that would never be done, and repairs it. */
export const selfCheck = {
  ...nothingStored,
  commands: {
    repair: internal(
      audited(repair, ({ suspect }, { repaired }) =>
        repaired ? { what: `repair.${suspect.kind}`, object: suspect.id } : null,
      ),
    ),
  },
  createQueries: (reads: StorageReads) => ({
    /** Looks for rows of an account that contradict each other, so that work would be left undone. */
    suspects: (range: SuspectRange): Promise<SuspectPage> => findSuspects(reads, range),
  }),
} satisfies StoredOperation;
