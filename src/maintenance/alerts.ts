import type { Clock } from "../clock/clock.ts";
import type { AlertFacts } from "../core/accounts/alerts.ts";
import {
  alertTimeout,
  findNotices,
  formatAlertBody,
  listOldAlerts,
  maxKeptAlerts,
} from "../core/accounts/alerts.ts";
import { readLimit, readPlan } from "../core/accounts/plans.ts";
import { pickAlertKeys } from "../core/accounts/signingKeys.ts";
import type { Alert, AlertSetting } from "../core/model/alert.ts";
import type { Account, Delivery, Millis, Outcome } from "../core/model/message.ts";
import { makeStoredMessage, noMessageSettings, noSendSettings } from "../core/model/message.ts";
import { second } from "../core/values/time.ts";
import type { Store } from "../store/store.ts";
import type { MaintenanceTask } from "./scheduler.ts";

/** A receiver that does not respond delays the alerts of at most this many accounts, by one timeout. */
const accountsAtOnce = 20;
/** The most alerts of an account that are sent at once. */
const sendsAtOnce = 5;
/** The time between two looks at the accounts with alerts. */
const checkInterval: Millis = 15 * second;

type AlertTaskOptions = {
  store: Store;
  clock: Clock;
  /** Makes one request. The rules for destinations hold as for deliveries. */
  deliver(delivery: Delivery): AlertCall;
  /** Returns the bytes of the disk of the server, or null. */
  disk(): Promise<AlertFacts["disk"]>;
  /** Reports whether nothing may be sent. */
  isHeld(): boolean;
  /** Aborted when the server stops. A receiver that does not respond must not delay that. */
  stop: AbortSignal;
};

/** A request with an alert. `abort` ends it if it has not ended. */
type AlertCall = { outcome: Promise<Outcome>; abort(): void };

/** An account with a URL for alerts. */
type ToldAccount = Account & { alerts: AlertSetting };

const isTold = (account: Account): account is ToldAccount =>
  account.alerts !== undefined && account.deletedAt === undefined && account.state !== "passive";

/**
 * Returns the task that sends alerts. It looks only at accounts that have a URL for them, with
 * bounded reads, and sleeps while there are none. Several nodes may look at once: an alert is recorded once
 * in an hour, and one node at a time sends it.
 */
export function createAlertTask(options: AlertTaskOptions): MaintenanceTask {
  const { store, clock } = options;
  return {
    name: "alerts",
    pause: checkInterval,
    nextAt: async () => ((await store.read.accounts()).some(isTold) ? clock.now() : Infinity),
    onWork: (listener) => store.onAccounts(listener),
    run: async () => {
      const told = (await store.read.accounts()).filter(isTold);
      const failures: unknown[] = [];
      for (let at = 0; at < told.length && !options.stop.aborted; at += accountsAtOnce) {
        const turn = told.slice(at, at + accountsAtOnce).map((account) => tellAccount(account, options));
        for (const result of await Promise.allSettled(turn))
          if (result.status === "rejected") failures.push(result.reason);
      }
      // The other accounts have their alerts nevertheless.
      if (failures.length > 0) throw failures[0];
    },
  };
}

async function tellAccount(account: ToldAccount, options: AlertTaskOptions): Promise<void> {
  const { store, clock } = options;
  const listAlerts = (): Promise<readonly Alert[]> =>
    store.read.listResources("alerts", { account: account.id, descending: true, limit: 2 * maxKeptAlerts });
  const now = clock.now();
  const facts = await readFacts(account, options, now);
  const told = await listAlerts();
  const notices = findNotices({ account, facts, told, now });
  if (notices.length > 0) await store.execute("noteAlerts", { account: account.id, notices, now });
  const due = (notices.length > 0 ? await listAlerts() : told).filter(
    ({ dueAt }) => dueAt !== null && dueAt <= clock.now(),
  );
  if (!options.isHeld())
    await Promise.all(due.slice(-sendsAtOnce).map(({ id }) => sendAlert(account, id, options)));
  const ids = listOldAlerts(told, now);
  if (ids.length > 0) await store.execute("removeAlerts", { account: account.id, ids });
}

async function readFacts(
  account: ToldAccount,
  { store, disk }: AlertTaskOptions,
  now: Millis,
): Promise<AlertFacts> {
  const [stored, sums] = await Promise.all([
    store.read.alertFacts(account.id, now),
    store.read.storedBytes([account.id], null),
  ]);
  return {
    ...stored,
    storage: { used: sums[0]?.bytes ?? 0, max: readLimit(account, "storageBytes") },
    // The disk belongs to the operator. An account without a plan is the operator's own.
    disk: readPlan(account) === "selfHosted" ? await disk() : null,
  };
}

/** Sends an alert if it is due and no other node sends it. A failure is recorded, and tried again later. */
async function sendAlert(
  account: ToldAccount,
  id: string,
  { store, clock, deliver, stop }: AlertTaskOptions,
): Promise<void> {
  if (stop.aborted) return;
  const alert = await store.execute("takeAlert", { account: account.id, id });
  if (!alert) return;
  const { outcome, abort } = deliver(toDelivery(account, alert, clock.now()));
  stop.addEventListener("abort", abort);
  if (stop.aborted) abort();
  const { status, error } = await outcome.finally(() => stop.removeEventListener("abort", abort));
  const result = { status, error: error?.slice(0, longestError) ?? null };
  await store.execute("noteAlertOutcome", { account: account.id, id, attempt: alert.attempts, ...result });
}

const longestError = 300;

/** Returns the request that tells an account about an event. */
function toDelivery(account: ToldAccount, alert: Alert, now: Millis): Delivery {
  const message = makeStoredMessage(
    {
      ...noMessageSettings,
      ...noSendSettings,
      brand: "svc",
      url: account.alerts.url,
      headers: [["Content-Type", "application/json"]],
      body: new TextEncoder().encode(formatAlertBody(account, alert)),
    },
    {
      account: account.id,
      id: alert.id,
      createdAt: alert.createdAt,
      notBefore: alert.createdAt,
      startedAtOnce: false,
      retries: 0,
      timeout: alertTimeout,
    },
  );
  return { message, attempt: alert.attempts, ...pickAlertKeys(account, account.alerts.secret, now) };
}
