import type { Clock } from "../../engine/clock/clock.ts";
import type { FoundAlerts } from "./pickAlerts.ts";
import { alertTimeout, formatAlertBody, listOldAlerts, maxKeptAlerts } from "./pickAlerts.ts";
import type { Alert } from "./alert.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import type { Delivery } from "../../engine/core/model/delivery.ts";
import type { Outcome } from "../../engine/core/model/attempt.ts";
import { makeStoredMessage, noMessageSettings } from "../../engine/core/model/message.ts";
import { noSendSettings } from "../../engine/core/model/sendSettings.ts";
import type { Store } from "../../engine/store/store.ts";

// Records and sends the alerts of one receiver: that of an account, or that of the server as a whole.

/** The maximum number of alerts of a receiver that are sent at once. */
const sendsAtOnce = 5;

/** The services that send alerts. */
export type AlertSender = {
  store: Store;
  clock: Clock;
  /** Makes one request. The rules for destinations hold as for deliveries. */
  deliver(delivery: Delivery): AlertCall;
  /** Reports whether nothing may be sent. */
  isOnHold(): boolean;
  /** Aborted when the server stops. A receiver that does not respond must not delay that. */
  stop: AbortSignal;
};

/** A request with an alert. `abort` ends it if it has not ended. */
type AlertCall = { outcome: Promise<Outcome>; abort(): void };

/** A receiver of alerts. `about`: the account that they are about; null if they are about the server. */
export type AlertReceiver = {
  account: AccountId;
  about: Pick<Account, "id" | "name"> | null;
  url: string;
  /** Why the URL must not be called, or null. */
  refusal: string | null;
  pickKeys(now: Millis): Pick<Delivery, "signingKey" | "standardKeys">;
  /** Returns the alerts to create now, given those that are kept. */
  findNotices(earlier: readonly Alert[], now: Millis): FoundAlerts;
};

/** Records new alerts of a receiver, sends those that are due, and removes old ones. */
export async function tellReceiver(receiver: AlertReceiver, sender: AlertSender): Promise<void> {
  const { store, clock } = sender;
  const { account } = receiver;
  const listAlerts = (): Promise<readonly Alert[]> =>
    store.read.alerts({ account, descending: true, limit: 2 * maxKeptAlerts });
  const now = clock.now();
  const earlier = await listAlerts();
  const found = receiver.findNotices(earlier, now);
  const isNew = found.notices.length + found.dropped.length > 0;
  if (isNew) await store.execute("noteAlerts", { account, now, ...found });
  const due = (isNew ? await listAlerts() : earlier).filter(
    ({ dueAt }) => dueAt !== null && dueAt <= clock.now(),
  );
  if (!sender.isOnHold())
    await Promise.all(due.slice(-sendsAtOnce).map(({ id }) => sendAlert(receiver, id, sender)));
  const ids = listOldAlerts(earlier, now);
  if (ids.length > 0) await store.execute("removeAlerts", { account, ids, reason: "age" });
}

/** Sends an alert if it is due and no other node sends it. A failure is recorded, and tried again later. */
async function sendAlert(
  receiver: AlertReceiver,
  id: string,
  { store, clock, deliver, stop }: AlertSender,
): Promise<void> {
  if (stop.aborted) return;
  const { account } = receiver;
  const alert = await store.execute("takeAlert", { account, id });
  if (!alert) return;
  const { outcome, abort } =
    receiver.refusal === null
      ? deliver(toDelivery(receiver, alert, clock.now()))
      : { outcome: Promise.resolve({ status: null, error: receiver.refusal }), abort: () => undefined };
  stop.addEventListener("abort", abort);
  if (stop.aborted) abort();
  const { status, error } = await outcome.finally(() => stop.removeEventListener("abort", abort));
  const result = { status, error: error?.slice(0, longestError) ?? null };
  await store.execute("noteAlertOutcome", { account, id, attempt: alert.attempts, ...result });
}

const longestError = 300;

/** Returns the request with an alert. */
function toDelivery({ account, about, url, pickKeys }: AlertReceiver, alert: Alert, now: Millis): Delivery {
  const message = makeStoredMessage(
    {
      ...noMessageSettings,
      ...noSendSettings,
      brand: "svc",
      url,
      headers: [["Content-Type", "application/json"]],
      body: new TextEncoder().encode(formatAlertBody(about, alert)),
    },
    {
      account,
      id: alert.id,
      createdAt: alert.createdAt,
      notBefore: alert.createdAt,
      startedAtOnce: false,
      retries: 0,
      timeout: alertTimeout,
    },
  );
  // The number of attempts before this one, as the header `Retried` has it.
  return { message, attempt: alert.attempts - 1, ...pickKeys(now) };
}
