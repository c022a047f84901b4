import type { FieldsOf } from "../../api/fields/field.ts";
import {
  count,
  flag,
  integer,
  list,
  longText,
  optional,
  text,
  time,
  word,
  words,
} from "../../api/fields/field.ts";
import type { Alert, AlertSetting, ServerAlertSetting } from "./alert.ts";
import { alertEvents, droppedEvent, serverAlertEvents } from "./alert.ts";
import { maxAlertsPerEvent, maxDroppedPerHour } from "./pickAlerts.ts";

const urlField = text<{ url: string }>("The URL that receives the alerts.", ({ url }) => url);

/** The fields of the setting of an account: the URL that receives its alerts. */
export const settingFields: FieldsOf<AlertSetting> = {
  url: urlField,
  after: integer(
    "How long a host fails or a message waits at a gate before an alert is sent, in seconds.",
    ({ after }) => after / 1000,
  ),
  events: words(alertEvents)("The events that cause an alert.", ({ events }) => events),
  hasSecret: flag(
    "Whether a secret signs the alerts. If not, the signing keys of the account sign them.",
    ({ secret }) => secret !== undefined,
  ),
};

/** The fields of the setting of the server as a whole, without its secret. */
export const serverSettingFields: FieldsOf<ServerAlertSetting> = {
  url: urlField,
  events: words(serverAlertEvents)("The events that cause an alert.", ({ events }) => events),
};

/** The fields of an alert in the log. */
export const alertFields = {
  alertId: text("The id of the alert. The request to the URL has the same id.", ({ id }) => id),
  event: word([...alertEvents, droppedEvent])("The event.", ({ event }) => event),
  subject: longText(
    "The thing that it happened to: a host, a queue, a source and so on.",
    ({ subject }) => subject,
  ),
  text: text("A sentence for people.", ({ text }) => text),
  count: optional(integer)(
    "The number of dead letters, rejected calls or dropped alerts.",
    ({ count }) => count,
  ),
  createdAt: time("When it was noticed, in Unix milliseconds.", ({ createdAt }) => createdAt, "CREATED"),
  state: word(["pending", "sent", "failed"])(
    "pending: it is sent, or sent again. sent: the URL accepted it. failed: it is not sent again.",
    ({ state }) => state,
  ),
  attempts: integer("The number of requests.", ({ attempts }) => attempts),
  responseStatus: optional(integer)("The status of the last response.", ({ status }) => status),
  error: optional(text)("Why the last request failed.", ({ error }) => error),
  nextAttemptAt: optional(time)("When it is sent next, in Unix milliseconds.", ({ dueAt }) => dueAt),
} satisfies FieldsOf<Alert>;

/** The fields of the log of alerts. */
export const logFields: FieldsOf<readonly Alert[]> = {
  alerts: list(alertFields)("The alerts.", (alerts) => alerts.toSorted((a, b) => b.createdAt - a.createdAt)),
  dropped: count(
    "The number of alerts that were dropped in the time of these alerts: an event had more than " +
      `${maxAlertsPerEvent} in an hour, or they were held for too long. At most ${maxDroppedPerHour} are ` +
      "counted in an hour.",
    (alerts) => alerts.reduce((sum, { event, count = 0 }) => sum + (event === droppedEvent ? count : 0), 0),
  ),
};
