import {
  countDropped,
  isRecentAlert,
  leaseAlert,
  makeAlert,
  settleAlert,
  toAlertId,
  toDroppedId,
} from "./pickAlerts.ts";
import type { FoundAlerts } from "./pickAlerts.ts";
import { assertHostsAllowed } from "../../engine/core/accounts/allowedHosts.ts";
import { requireAccount } from "../../engine/core/accounts/plans.ts";
import type { Decision, Draft } from "../../engine/core/decision/command.ts";
import { droppedEvent } from "./alert.ts";
import type { Alert, AlertSetting, ServerAlertSetting } from "./alert.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import { serverAccount } from "../../engine/core/values/basics.ts";
import { hour } from "../../engine/core/values/time.ts";

/** Sets the URL that receives the alerts of an account. Null: there are no more alerts. */
export const setAlerts: Decision<
  { account: AccountId; alerts: AlertSetting | null },
  { alerts: AlertSetting | null; wasSet: boolean }
> = {
  decide: ({ account: id, alerts }, draft) => {
    const { alerts: before, ...account }: Account = requireAccount(draft.get("accounts", id));
    if (alerts) assertHostsAllowed(account, [alerts.url]);
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
 * Creates the alerts of an account, and counts those that are dropped. A notice that another node has
 * recorded within an hour, or dropped in this one, with `now` as its time, is not recorded again.
 */
export const noteAlerts: Decision<
  { account: AccountId; now: Millis } & FoundAlerts,
  { noted: number; dropped: number }
> = {
  decide: ({ account, notices, dropped, now }, draft) => {
    if (!hasReceiver(draft, account)) return { noted: 0, dropped: 0 };
    const droppedBefore = new Set(draft.get("alerts", account, toDroppedId(now))?.dropped);
    let noted = 0;
    for (const notice of notices) {
      const id = toAlertId(notice, now);
      if (droppedBefore.has(id) || draft.get("alerts", account, id)) continue;
      const before = draft.get("alerts", account, toAlertId(notice, now - hour));
      if (before && isRecentAlert(before, now)) continue;
      draft.put("alerts", makeAlert(account, notice, now));
      noted++;
    }
    const neverNoted = dropped.filter((id) => !draft.get("alerts", account, id));
    return { noted, dropped: dropAlerts(draft, { account, ids: neverNoted, now }) };
  },
};

/** Counts alerts as dropped, unless they were counted in this hour. Returns the number of new ones. */
function dropAlerts(
  draft: Draft,
  { account, ids, now }: { account: AccountId; ids: readonly string[]; now: Millis },
): number {
  const before = draft.get("alerts", account, toDroppedId(now));
  const after = countDropped({ account, now, before }, ids);
  const added = (after.count ?? 0) - (before?.count ?? 0);
  if (added === 0) return 0;
  draft.put("alerts", after);
  for (let count = 0; count < added; count++) draft.record("alert dropped");
  return added;
}

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

/** Removes alerts. If they are removed because of their age, those that were never sent count as dropped. */
export const removeAlerts: Decision<
  { account: AccountId; ids: readonly string[]; reason: "age" | "request" },
  { removed: number }
> = {
  decide: ({ account, ids, reason }, draft, { now }) => {
    const known = ids.flatMap((id) => draft.get("alerts", account, id) ?? []);
    for (const { id } of known) draft.drop("alerts", account, id);
    const unsent = known.filter(({ state, event }) => state === "pending" && event !== droppedEvent);
    if (reason === "age") dropAlerts(draft, { account, ids: unsent.map(({ id }) => id), now });
    return { removed: known.length };
  },
};
