import { z } from "zod";
import { defaultAlertAfter, maxKeptAlerts } from "./pickAlerts.ts";
import { alertEvents } from "./alert.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { makeHostWarnings, showWarnings, warningsField } from "../../api/publishing/refusedHosts.ts";
import { readObject } from "../../api/route/readObject.ts";
import { aboutSecret, alertSecret, alertUrl, assertHttpUrl } from "./request.ts";
import { route } from "../../api/route/route.ts";
import { assertMayReadToSend } from "../../api/route/scope.ts";
import { toJson } from "../../api/fields/field.ts";
import { toSchema } from "../../api/views/fieldSchema.ts";
import { logFields, settingFields } from "./fields.ts";

const tag = "Alerts";
const path = "/v2/alerts";
const longestAfter = 24 * 60;

const get = route({
  method: "GET",
  path,
  tag,
  summary: "Read where alerts are sent",
  answers: {
    200: { about: "The URL, and the events that cause an alert.", schema: toSchema(settingFields) },
  },
  refusals: ["not-found"],
  handle: async ({ account, context }) => {
    const alerts = (await context.store.read.account(account.id))?.alerts;
    if (!alerts) throw new Refusal("not-found", "alerts: no URL is set; PUT /v2/alerts sets one");
    return { status: 200, body: toJson(settingFields, alerts) };
  },
});

const requestSchema = z.strictObject({
  url: alertUrl,
  after: z
    .int("is not a whole number")
    .min(60, "must be at least 60")
    .max(longestAfter * 60, `must be at most ${longestAfter * 60}`)
    .optional()
    .describe(
      "How long a host fails or a message waits at a gate before an alert is sent, in seconds. " +
        `Default: ${defaultAlertAfter / 1000}.`,
    ),
  events: z
    .array(z.enum(alertEvents, { error: `must be one of ${alertEvents.join(", ")}` }), "is not a list")
    .min(1, "is empty; use DELETE to send no alerts")
    .optional()
    .describe("The events that cause an alert. Default: all."),
  secret: alertSecret
    .optional()
    .describe(`${aboutSecret} Default: the signing keys of the account sign them as deliveries.`),
});

const put = route({
  method: "PUT",
  path,
  tag,
  summary: "Set where alerts are sent",
  about:
    "Sets the URL that receives alerts, for example about a host that fails. An alert is one POST request " +
    "with JSON, signed as a delivery or by a secret. Each event of a subject causes at most one alert in " +
    "an hour. Alerts use no quota and have no dead letters, and an alert that fails causes no other alert. " +
    "A token needs the verb read in addition to manage.",
  body: {
    about: "The URL, and the events.",
    contentType: "application/json",
    schema: requestSchema,
    required: true,
    maxBytes: 64 * 1024,
  },
  answers: {
    200: { about: "The new setting.", schema: toSchema(settingFields).extend(warningsField) },
  },
  refusals: [],
  handle: async ({ account, incoming, context }) => {
    const { url, after, events = alertEvents, secret } = readObject(requestSchema, incoming);
    assertHttpUrl(url);
    assertMayReadToSend(incoming, "alerts", [url]);
    const alerts = {
      url,
      after: after === undefined ? defaultAlertAfter : after * 1000,
      events: alertEvents.filter((event) => events.includes(event)),
      ...(secret !== undefined && { secret }),
    };
    await context.store.execute("setAlerts", { account: account.id, alerts });
    const destinations = [{ url, group: null }];
    const { field, headers } = showWarnings(makeHostWarnings({ incoming, context }, destinations));
    return { status: 200, body: { ...toJson(settingFields, alerts), ...field }, headers };
  },
});

const remove = route({
  method: "DELETE",
  path,
  tag,
  summary: "Turn off alerts",
  about: "Removes the URL and the log of alerts.",
  answers: {
    200: {
      about: "The URL was removed.",
      schema: z.object({ deleted: z.boolean().describe("Whether a URL was set.") }),
    },
  },
  refusals: [],
  handle: async ({ account, context }) => {
    const { wasSet } = await context.store.execute("setAlerts", { account: account.id, alerts: null });
    const range = { account: account.id, limit: 2 * maxKeptAlerts };
    const ids = (await context.store.read.alerts(range)).map(({ id }) => id);
    if (ids.length > 0)
      await context.store.execute("removeAlerts", { account: account.id, ids, reason: "request" });
    return { status: 200, body: { deleted: wasSet } };
  },
});

const log = route({
  method: "GET",
  path: `${path}/log`,
  tag,
  summary: "List alerts",
  about: `Lists the last ${maxKeptAlerts} alerts, those of the newest hour first. They are kept for 7 days.`,
  answers: {
    200: { about: "The alerts.", schema: toSchema(logFields) },
  },
  refusals: [],
  handle: async ({ account, context }) => {
    const range = { account: account.id, descending: true, limit: maxKeptAlerts };
    const alerts = await context.store.read.alerts(range);
    return { status: 200, body: toJson(logFields, alerts) };
  },
});

/** The routes of alerts. */
export const routes = [get, put, remove, log];
