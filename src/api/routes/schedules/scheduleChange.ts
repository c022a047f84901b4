import { z } from "zod";
import type { ScheduleChange } from "../../../engine/core/commands/changeSchedule.ts";
import { noSchedule } from "../../../engine/core/sending/scheduleChecks.ts";
import type { Schedule } from "../../../engine/core/model/schedule.ts";
import type { AccountId } from "../../../engine/core/values/basics.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { isName } from "../../../engine/core/values/name.ts";
import type { Store } from "../../../engine/store/store.ts";
import { assertUrl, isUrl } from "../../http/target.ts";
import { toSettingHeaders } from "../../publishing/keptSettings.ts";
import { findGroup, listKeptSettings } from "../../publishing/read.ts";
import {
  listDestinations,
  makeHostWarnings,
  showWarnings,
  warningsField,
} from "../../publishing/refusedHosts.ts";
import { readObject } from "../../route/readObject.ts";
import { route } from "../../route/route.ts";
import { readScope } from "../../route/scope.ts";
import { readScheduleSettings } from "../../settings/scheduleChanges.ts";
import { scheduleWithTimesJson, scheduleSchema } from "../../views/schedules.ts";
import { readMessageStates } from "./scheduleStates.ts";

/** The maximum number of values of one setting, such as a header that is forwarded repeatedly. */
const maxValues = 32;

const changeSchema = z
  .strictObject({
    destination: z
      .string("is not a string")
      .describe("The new destination: a URL, or the name of a URL group."),
    settings: z
      .record(
        z.string(),
        z.union(
          [z.string(), z.array(z.string()).max(maxValues), z.null()],
          "is neither a string, a list of strings, nor null",
        ),
      )
      .describe(
        "The settings that change, as headers such as Svc-Cron or Svc-Forward-Authorization, each with a " +
          `value or a list of at most ${maxValues} values. null removes a setting.`,
      ),
    body: z.string("is not a string").describe("The new body, as text."),
    bodyBase64: z
      .base64("is not base64")
      .describe("The new body in base64, for a body that is not text. Not valid together with body."),
  })
  .partial();

/** Changes parts of a schedule. */
export const changeSchedule = route({
  method: "PATCH",
  path: "/v2/schedules/{scheduleId}",
  tag: "Schedules",
  summary: "Change a schedule",
  about:
    "Changes the given parts and keeps everything else, including a pause and the last firing. A new cron " +
    "expression takes effect at its next time. A callback is replaced as a whole: its URL comes with " +
    "all its settings. Svc-Redact-Fields hides more fields, and cannot be removed. The default headers of " +
    "a URL group apply only to a schedule that is created for it. A token needs the verb read in addition " +
    "to manage. A redacted body or header is not sent to another destination or callback.",
  params: z.object({ scheduleId: z.string() }),
  body: {
    about: "The parts that change.",
    contentType: "application/json",
    schema: changeSchema,
    required: true,
    maxBytes: { messages: 2 },
  },
  answers: {
    200: { about: "The schedule after the change.", schema: scheduleSchema.extend(warningsField) },
  },
  refusals: ["not-found", "limit-exceeded", "storage-quota-exceeded", "disk-low", "forbidden"],
  handle: async ({ account: { id: account }, params: { scheduleId: id }, incoming, context }) => {
    const { store } = context;
    const { settings = {}, destination, ...bodies } = readObject(changeSchema, incoming);
    const removed = Object.entries(settings).flatMap(([name, value]) => (value === null ? [name] : []));
    const addedSettings = Object.fromEntries(
      Object.entries(settings).flatMap(([name, value]) => (value === null ? [] : [[name, value]])),
    );
    const headers = toSettingHeaders("settings", addedSettings);
    const { changes, overrides, ignored } = readScheduleSettings(listKeptSettings(headers), removed);
    if (!isName(id)) throw noSchedule(id);
    const { target, endpoints } = await readTarget(store, account, destination);
    const change = { ...changes, ...target, ...readBody(bodies) };
    const schedule = await store.execute("changeSchedule", {
      account,
      id,
      change,
      overrides,
      ...readScope(incoming),
    });
    const destinations = listDestinations(schedule.messageInput, endpoints);
    const { field, headers: warned } = showWarnings(makeHostWarnings({ incoming, context }, destinations));
    const shown = await showSchedule(store, schedule, context.now());
    return { status: 200, body: { ...shown, ...field }, ignored, headers: warned };
  },
});

const showSchedule = async (store: Store, schedule: Schedule, now: number) =>
  scheduleWithTimesJson(
    schedule,
    await readMessageStates(store, schedule.account, schedule.lastMessages),
    now,
  );

type Target = { target: Pick<ScheduleChange, "target">; endpoints: readonly string[] };

/** Reads a new destination. Throws `Refusal` if it is neither a URL nor the name of a URL group. */
async function readTarget(
  store: Store,
  account: AccountId,
  destination: string | undefined,
): Promise<Target> {
  if (destination === undefined) return { target: {}, endpoints: [] };
  if (isUrl(destination)) {
    assertUrl("destination", destination);
    return { target: { target: { url: destination, group: null } }, endpoints: [] };
  }
  const { group, query, settings } = await findGroup(store, account, destination);
  const [setting] = settings;
  if (setting)
    throw new Refusal(
      "invalid",
      `destination: has the setting ${setting.writtenName.slice(0, 200)}; use settings`,
    );
  return {
    target: { target: { url: "", group: group.name, ...(query === null ? {} : { query }) } },
    endpoints: group.endpoints.map(({ url }) => url),
  };
}

function readBody({
  body,
  bodyBase64,
}: {
  body?: string | undefined;
  bodyBase64?: string | undefined;
}): Pick<ScheduleChange, "body"> {
  if (body !== undefined && bodyBase64 !== undefined)
    throw new Refusal("invalid", "bodyBase64: not valid together with body; remove one");
  if (body !== undefined) return { body: Buffer.from(body) };
  return bodyBase64 === undefined ? {} : { body: Buffer.from(bodyBase64, "base64") };
}
