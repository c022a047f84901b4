import type { AuditNote } from "../../engine/core/model/auditEntry.ts";
import { audited } from "../../engine/core/commands/audit.ts";
import { accountChange, internal } from "../../engine/core/commands/kinds.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import type { StoredOperation } from "../../engine/store/layout/storedOperation.ts";
import { keyOfAccountRow } from "../../engine/store/layout/storedOperation.ts";
import { describeWorkTable, workTableSchema } from "../../engine/store/layout/workTable.ts";
import type { Range, StorageReads } from "../../engine/store/layout/storageReads.ts";
import type { Alert, AlertSetting, ServerAlertSetting } from "./alert.ts";
import {
  noteAlertOutcome,
  noteAlerts,
  removeAlerts,
  setAlerts,
  setServerAlerts,
  takeAlert,
} from "./commands.ts";
import type { AlertFacts } from "./pickAlerts.ts";
import { readAlertFacts } from "./facts.ts";

declare module "../../engine/core/decision/command.ts" {
  interface Rows {
    alerts: Alert;
  }
}
declare module "../../engine/core/model/accountTerms.ts" {
  interface OperationTerms {
    /** The URL that receives the alerts of the account. Absent: there are no alerts. */
    alerts?: AlertSetting;
  }
}
declare module "../../engine/core/model/serverSetting.ts" {
  interface ServerSettings {
    /** The URL that receives the alerts of the server as a whole. */
    alerts: ServerAlertSetting;
  }
}

/** Makes a note about the URL that receives alerts. */
const noteSetting = (
  { alerts }: { alerts: object | null },
  { wasSet }: { wasSet: boolean },
): AuditNote | null =>
  alerts === null && !wasSet
    ? null
    : { what: alerts === null ? "alerts.delete" : "alerts.set", object: null };

/** Alerts to accounts and to the operator. */
export const alerts = {
  schema: workTableSchema("alerts"),
  tables: { alerts: describeWorkTable<Alert>("alerts") },
  keys: { alerts: keyOfAccountRow },
  commands: {
    setAlerts: accountChange(audited(setAlerts, noteSetting)),
    setServerAlerts: accountChange(audited(setServerAlerts, noteSetting)),
    noteAlerts: internal(noteAlerts),
    takeAlert: internal(takeAlert),
    noteAlertOutcome: internal(noteAlertOutcome),
    removeAlerts: internal(removeAlerts),
  },
  createQueries: (reads: StorageReads) => ({
    /** Returns alerts of an account in the order of their ids. */
    alerts: (range: Range): Promise<readonly Alert[]> => reads.range("alerts", range),
    /** Returns where the alerts of the server as a whole are sent, or null. */
    serverAlerts: async (): Promise<ServerAlertSetting | null> =>
      (await reads.rows("serverSettings", [["alerts"]]))[0]?.alerts ?? null,
    /** Returns what the alerts of an account depend on besides its conditions. */
    alertFacts: (account: AccountId, now: Millis): Promise<AlertFacts> => readAlertFacts(reads, account, now),
  }),
  secretTerms: ["alerts"],
} satisfies StoredOperation;
