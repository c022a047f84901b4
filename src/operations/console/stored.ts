import { audited, noteAccount } from "../../engine/core/commands/audit.ts";
import type { StoredOperation } from "../../engine/store/layout/storedOperation.ts";
import { nothingStored } from "../../engine/store/layout/storedOperation.ts";
import { closeSession, openSession } from "./commands.ts";

/** The sessions of the web console. */
export const webConsole = {
  ...nothingStored,
  commands: {
    openSession: audited(openSession, noteAccount("session.open")),
    closeSession: audited(closeSession, noteAccount("session.close")),
  },
} satisfies StoredOperation;
