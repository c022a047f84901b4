import { z } from "zod";
import type { Alert, AlertSetting } from "../../core/model/alert.ts";
import { alertEvents } from "../../core/model/alert.ts";

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

/** The schema of an alert in the log. */
export const alertSchema = z.object({
  alertId: z.string().describe("The id of the alert. The request to the URL has the same id."),
  event: z.enum(alertEvents).describe("The event."),
  subject: z.string().describe("The thing that it happened to: a host, a queue, a source and so on."),
  text: z.string().describe("A sentence for people."),
  count: z.int().optional().describe("The number of dead letters or rejected calls."),
  createdAt: z.int().describe("When it was noticed, in Unix milliseconds."),
  state: z
    .enum(["pending", "sent", "failed"])
    .describe("pending: it is sent, or sent again. sent: the URL accepted it. failed: it is not sent again."),
  attempts: z.int().describe("The number of requests."),
  responseStatus: z.int().optional().describe("The status of the last response."),
  error: z.string().optional().describe("Why the last request failed."),
  nextAttemptAt: z.int().optional().describe("When it is sent next, in Unix milliseconds."),
});

/** Returns an alert as the API shows it. */
export const alertJson = (alert: Alert): z.output<typeof alertSchema> => {
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
