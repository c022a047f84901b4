import { z } from "zod";
import { maxKeptAlerts } from "./pickAlerts.ts";
import { serverAlertEvents } from "./alert.ts";
import { serverAccount } from "../../engine/core/values/basics.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { makeHostWarnings, showWarnings, warningsField } from "../../api/publishing/refusedHosts.ts";
import { operatorRoute } from "../../api/route/operator.ts";
import { readObject } from "../../api/route/readObject.ts";
import type { Route } from "../../api/route/route.ts";
import { toJson } from "../../api/fields/field.ts";
import { toSchema } from "../../api/views/fieldSchema.ts";
import { logFields, serverSettingFields } from "./fields.ts";
import { aboutSecret, alertSecret, alertUrl, assertHttpUrl } from "./request.ts";

const tag = "Administration";
const path = "/v2/admin/alerts";

const get = operatorRoute({
  method: "GET",
  path,
  tag,
  summary: "Read where alerts about the server are sent",
  answers: {
    200: { about: "The URL, and the events that cause an alert.", schema: toSchema(serverSettingFields) },
  },
  refusals: ["not-found"],
  handle: async ({ context }) => {
    const alerts = await context.store.read.serverAlerts();
    if (!alerts) throw new Refusal("not-found", `alerts: no URL is set; PUT ${path} sets one`);
    return { status: 200, body: toJson(serverSettingFields, alerts) };
  },
});

const requestSchema = z.strictObject({
  url: alertUrl,
  events: z
    .array(
      z.enum(serverAlertEvents, { error: `must be one of ${serverAlertEvents.join(", ")}` }),
      "is not a list",
    )
    .min(1, "is empty; use DELETE to send no alerts")
    .optional()
    .describe("The events that cause an alert. Default: all."),
  secret: alertSecret.describe(aboutSecret),
});

const put = operatorRoute({
  method: "PUT",
  path,
  tag,
  summary: "Set where alerts about the server are sent",
  about:
    "Sets the URL that receives alerts about the server as a whole: its disk, and accounts near their " +
    "storage limit. The alerts of accounts do not change. All else is as for PUT /v2/alerts.",
  body: {
    about: "The URL, the events, and the secret.",
    contentType: "application/json",
    schema: requestSchema,
    required: true,
    maxBytes: 64 * 1024,
  },
  answers: {
    200: { about: "The new setting.", schema: toSchema(serverSettingFields).extend(warningsField) },
  },
  refusals: [],
  handle: async ({ incoming, context }) => {
    const { url, events = serverAlertEvents, secret } = readObject(requestSchema, incoming);
    assertHttpUrl(url);
    const alerts = { url, events: serverAlertEvents.filter((event) => events.includes(event)), secret };
    await context.store.execute("setServerAlerts", { alerts });
    const destinations = [{ url, group: null }];
    const { field, headers } = showWarnings(makeHostWarnings({ incoming, context }, destinations));
    return { status: 200, body: { ...toJson(serverSettingFields, alerts), ...field }, headers };
  },
});

const remove = operatorRoute({
  method: "DELETE",
  path,
  tag,
  summary: "Turn off alerts about the server",
  about: "Removes the URL, the secret and the log of these alerts.",
  answers: {
    200: {
      about: "The URL was removed.",
      schema: z.object({ deleted: z.boolean().describe("Whether a URL was set.") }),
    },
  },
  refusals: [],
  handle: async ({ context: { store } }) => {
    const { wasSet } = await store.execute("setServerAlerts", { alerts: null });
    const range = { account: serverAccount, limit: 2 * maxKeptAlerts };
    const ids = (await store.read.alerts(range)).map(({ id }) => id);
    if (ids.length > 0)
      await store.execute("removeAlerts", { account: serverAccount, ids, reason: "request" });
    return { status: 200, body: { deleted: wasSet } };
  },
});

const log = operatorRoute({
  method: "GET",
  path: `${path}/log`,
  tag,
  summary: "List alerts about the server",
  about: `Lists the last ${maxKeptAlerts} alerts about the server. They are kept for 7 days.`,
  answers: { 200: { about: "The alerts.", schema: toSchema(logFields) } },
  refusals: [],
  handle: async ({ context }) => {
    const range = { account: serverAccount, descending: true, limit: maxKeptAlerts };
    return { status: 200, body: toJson(logFields, await context.store.read.alerts(range)) };
  },
});

/** The routes of alerts about the server as a whole. */
export const serverRoutes: readonly Route[] = [get, put, remove, log];
