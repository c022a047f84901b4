import type { AccountId, Millis } from "../../engine/core/values/basics.ts";

/** The events that can cause an alert. */
export const alertEvents = [
  "deadLetter.created",
  "host.failing",
  "host.hanging",
  "host.recovered",
  "queue.blocked",
  "key.blocked",
  "puller.missing",
  "schedule.late",
  "schedule.refused",
  "schedule.failing",
  "source.rejecting",
  "outbox.failing",
  "outbox.rejecting",
  "outbox.late",
  "token.refused",
  "publishes.dropped",
  "storage.low",
  "disk.low",
  "signingKey.rotated",
] as const;
/** An event that can cause an alert. */
export type AlertEvent = (typeof alertEvents)[number];
/** The event of the alert about alerts that were dropped. It is sent even if the setting does not name it. */
export const droppedEvent = "alerts.dropped";

/**
 * The URL that receives alerts. `after`: how long a host fails or a gate blocks before an alert is sent.
 * `secret` signs the alerts instead of the account's signing keys.
 */
export type AlertSetting = { url: string; after: Millis; events: readonly AlertEvent[]; secret?: string };

/** The events that can cause an alert to the operator of the server. */
export const serverAlertEvents = ["disk.low", "storage.low"] as const satisfies readonly AlertEvent[];

/** The URL that receives the alerts of the server as a whole. `secret` signs them. */
export type ServerAlertSetting = {
  url: string;
  events: readonly (typeof serverAlertEvents)[number][];
  secret: string;
};

/** An event that was noticed. `subject` names the thing that it happened to. The text is for people. */
export type AlertNotice = {
  event: AlertEvent | typeof droppedEvent;
  subject: string;
  text: string;
  /** The number of dead letters, rejections or dropped alerts, for events that count something. */
  count?: number;
};

/**
 * The state of an alert.
 * - `pending`: it has not been accepted yet, and is sent again.
 * - `sent`: the receiver has accepted it.
 * - `failed`: the receiver did not accept it, and it is not sent again.
 */
export type AlertState = "pending" | "sent" | "failed";

/**
 * An alert to an account. Its `id` begins with the hour in which it was created and names the event and the
 * subject. So there is one alert for each of them in an hour, from all nodes together.
 */
export type Alert = AlertNotice & {
  account: AccountId;
  id: string;
  createdAt: Millis;
  /** When it may be sent. While it is being sent, when another node may send it. Null after its end. */
  dueAt: Millis | null;
  state: AlertState;
  attempts: number;
  /** The result of the last attempt. */
  status: number | null;
  error: string | null;
  /** The ids of the dropped alerts that this alert is about. */
  dropped?: readonly string[];
};
