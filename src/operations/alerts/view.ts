import { z } from "zod";
import { maxAlertsPerEvent, maxDroppedPerHour } from "./notices.ts";
import type { Alert, AlertSetting, ServerAlertSetting } from "./alert.ts";
import { alertEvents, droppedEvent, serverAlertEvents } from "./alert.ts";

/** The schema of the URL that receives the alerts of an account. */
export const alertSettingSchema = z.object({
  url: z.string().describe("The URL that receives the alerts."),
  after: z
    .int()
    .describe("How long a host fails or a message waits at a gate before an alert is sent, in seconds."),
  events: z.array(z.enum(alertEvents)).describe("The events that cause an alert."),
  hasSecret: z
    .boolean()
    .describe("Whether a secret signs the alerts. If not, the signing keys of the account sign them."),
});

/** Returns a setting as the API shows it. */
export const alertSettingJson = ({
  url,
  after,
  events,
  secret,
}: AlertSetting): z.output<typeof alertSettingSchema> => ({
  url,
  after: after / 1000,
  events: [...events],
  hasSecret: secret !== undefined,
});

/** The schema of the URL that receives the alerts of the server as a whole. */
export const serverAlertSettingSchema = z.object({
  url: z.string().describe("The URL that receives the alerts."),
  events: z.array(z.enum(serverAlertEvents)).describe("The events that cause an alert."),
});

/** Returns a setting of the server as the API shows it, without its secret. */
export const serverAlertSettingJson = ({
  url,
  events,
}: ServerAlertSetting): z.output<typeof serverAlertSettingSchema> => ({ url, events: [...events] });

/** The schema of an alert in the log. */
const alertSchema = z.object({
  alertId: z.string().describe("The id of the alert. The request to the URL has the same id."),
  event: z.enum([...alertEvents, droppedEvent]).describe("The event."),
  subject: z.string().describe("The thing that it happened to: a host, a queue, a source and so on."),
  text: z.string().describe("A sentence for people."),
  count: z.int().optional().describe("The number of dead letters, rejected calls or dropped alerts."),
  createdAt: z.int().describe("When it was noticed, in Unix milliseconds."),
  state: z
    .enum(["pending", "sent", "failed"])
    .describe("pending: it is sent, or sent again. sent: the URL accepted it. failed: it is not sent again."),
  attempts: z.int().describe("The number of requests."),
  responseStatus: z.int().optional().describe("The status of the last response."),
  error: z.string().optional().describe("Why the last request failed."),
  nextAttemptAt: z.int().optional().describe("When it is sent next, in Unix milliseconds."),
});

/** The schema of the log of alerts. */
export const alertLogSchema = z.object({
  alerts: z.array(alertSchema).describe("The alerts."),
  dropped: z
    .int()
    .min(0)
    .describe(
      "The number of alerts that were dropped in the time of these alerts: an event had more than " +
        `${maxAlertsPerEvent} in an hour, or they were held for too long. At most ${maxDroppedPerHour} are ` +
        "counted in an hour.",
    ),
});

/** Returns alerts as the API shows them, those of the newest hour first. */
export const alertLogJson = (alerts: readonly Alert[]): z.output<typeof alertLogSchema> => ({
  alerts: alerts.toSorted((a, b) => b.createdAt - a.createdAt).map(alertJson),
  dropped: alerts.reduce((sum, { event, count = 0 }) => sum + (event === droppedEvent ? count : 0), 0),
});

/** Returns an alert as the API shows it. */
const alertJson = (alert: Alert): z.output<typeof alertSchema> => {
  const { id, event, subject, text, count, createdAt, state, attempts, status, error, dueAt } = alert;
  return {
    ...{ alertId: id, event, subject, text },
    ...(count !== undefined && { count }),
    ...{ createdAt, state, attempts },
    ...(status !== null && { responseStatus: status }),
    ...(error !== null && { error }),
    ...(dueAt !== null && { nextAttemptAt: dueAt }),
  };
};
