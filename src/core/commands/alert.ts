import { leaseAlert, makeAlert, settleAlert, toAlertId } from "../accounts/alerts.ts";
import { mustAllowHosts } from "../accounts/allowedHosts.ts";
import { requireAccount } from "../accounts/plans.ts";
import type { Decision, Draft } from "../decision/command.ts";
import type { Alert, AlertNotice, AlertSetting, ServerAlertSetting } from "../model/alert.ts";
import type { Account, AccountId, Millis } from "../model/message.ts";
import { serverAccount } from "../values/basics.ts";

/** Sets the URL that receives the alerts of an account. Null: there are no more alerts. */
export const setAlerts: Decision<
  { account: AccountId; alerts: AlertSetting | null },
  { alerts: AlertSetting | null; wasSet: boolean }
> = {
  decide: ({ account: id, alerts }, draft) => {
    const { alerts: before, ...account }: Account = requireAccount(draft.get("accounts", id));
    if (alerts) mustAllowHosts(account, [alerts.url]);
    draft.put("accounts", alerts === null ? account : { ...account, alerts });
    return { alerts, wasSet: before !== undefined };
  },
};

/** Sets the URL that receives the alerts of the server as a whole. Null: there are no more alerts. */
export const setServerAlerts: Decision<{ alerts: ServerAlertSetting | null }, { wasSet: boolean }> = {
  decide: ({ alerts }, draft) => {
    const wasSet = draft.get("serverSettings", "alerts") !== undefined;
    if (alerts !== null) draft.put("serverSettings", { id: "alerts", alerts });
    else if (wasSet) draft.drop("serverSettings", "alerts");
    return { wasSet };
  },
};

/** Reports whether an account, or the server as a whole, has a URL for alerts. */
const hasReceiver = (draft: Draft, account: AccountId): boolean =>
  account === serverAccount
    ? draft.get("serverSettings", "alerts") !== undefined
    : draft.get("accounts", account)?.alerts !== undefined;

/**
 * Creates the alerts of an account. A notice that another node has recorded in this hour, with `now` as
 * its time, is not recorded again.
 */
export const noteAlerts: Decision<
  { account: AccountId; notices: readonly AlertNotice[]; now: Millis },
  { noted: number }
> = {
  decide: ({ account, notices, now }, draft) => {
    if (!hasReceiver(draft, account)) return { noted: 0 };
    let noted = 0;
    for (const notice of notices) {
      if (draft.get("alerts", account, toAlertId(notice, now))) continue;
      draft.put("alerts", makeAlert(account, notice, now));
      noted++;
    }
    return { noted };
  },
};

type Named = { account: AccountId; id: string };

/** Takes an alert to send it now. Null: it is not due, or another node sends it. */
export const takeAlert: Decision<Named, Alert | null> = {
  decide: ({ account, id }, draft, { now }) => {
    const alert = draft.get("alerts", account, id);
    if (!alert || alert.dueAt === null || alert.dueAt > now) return null;
    const taken = leaseAlert(alert, now);
    draft.put("alerts", taken);
    return taken;
  },
};

/** Records the result of an attempt. It changes nothing if another node has sent the alert meanwhile. */
export const noteAlertOutcome: Decision<
  Named & { attempt: number; status: number | null; error: string | null },
  { state: Alert["state"] } | null
> = {
  decide: ({ account, id, attempt, status, error }, draft, { now }) => {
    const alert = draft.get("alerts", account, id);
    if (!alert || alert.attempts !== attempt || alert.dueAt === null) return null;
    const settled = settleAlert(alert, { status, error }, now);
    draft.put("alerts", settled);
    return { state: settled.state };
  },
};

/** Removes alerts. */
export const removeAlerts: Decision<{ account: AccountId; ids: readonly string[] }, { removed: number }> = {
  decide: ({ account, ids }, draft) => {
    const known = ids.filter((id) => draft.get("alerts", account, id));
    for (const id of known) draft.drop("alerts", account, id);
    return { removed: known.length };
  },
};
