import { findOrigin, readOriginHost } from "../engine/core/accounts/pulledOrigins.ts";
import { formatDuration, parseDuration } from "../engine/core/values/duration.ts";
import { second } from "../engine/core/values/time.ts";
import type { Api } from "./api.ts";
import { apiPath } from "./apiPath.ts";
import type { GivenEndpoint, GivenGroup, GivenKey, GivenQueue, GivenSchedule } from "./applySchema.ts";
import { compareSettings, listSettings, matches, mergeSettings } from "./applySettings.ts";
import type { Difference } from "./applySettings.ts";
import type { ApplyStep } from "./applySteps.ts";
import { compareFields, hiddenDifference, jsonRequest, readOrNull } from "./applySteps.ts";
import type { BodyValue } from "./applyValues.ts";
import type { Fields } from "./terminal/fields.ts";
import { readNumber, readObject, readObjects, readRaw } from "./terminal/fields.ts";
import { CommandFailed } from "./terminal/commandFailed.ts";

// Each function reads what a server has, and returns the requests that make it as the file says.

/** Returns the steps that declare an origin as pulled. `existing`: the origins that are. */
export function planPulled(api: Api, origin: string, existing: readonly Fields[]): ApplyStep[] {
  const origins = existing.map((one) => readRaw(one, "origin"));
  const declared = findOrigin(origins, readOriginHost(origin));
  if (declared === origin) return [];
  if (declared !== undefined)
    throw new CommandFailed(
      "failed",
      `pulled.${origin}: ${declared} is pulled, which is the same; use that scheme`,
    );
  const request = jsonRequest("PUT", "/v2/pulled", { origin });
  const run = (): Promise<unknown> => api.read({ ...request, needs: { one: { origin: "string" } } });
  return [{ resource: `pulled.${origin}`, action: "create", differences: [], run }];
}

/** Returns the steps for a queue. */
export async function planQueue(api: Api, name: string, given: GivenQueue): Promise<ApplyStep[]> {
  const needs = { one: { parallelism: "number", paused: "boolean" } } as const;
  const shown = await readOrNull(api, apiPath`/v2/queues/${name}`, needs);
  const { ackTimeout, ...rest } = given;
  const wanted = { ...rest, ...(ackTimeout !== undefined && { ackTimeout: toShownDuration(ackTimeout) }) };
  const differences = compareFields(wanted, shown ?? {});
  if (shown !== null && differences.length === 0) return [];
  const request = jsonRequest("POST", "/v2/queues", { queueName: name, ...wanted });
  return [
    {
      resource: `queues.${name}`,
      action: shown === null ? "create" : "change",
      differences,
      run: () => api.read({ ...request, needs }),
    },
  ];
}

/** Returns a duration as a server shows it. */
const toShownDuration = (text: string): string => formatDuration(parseDuration(text) ?? 0);

const keyNeeds = { one: { isPaused: "boolean", isPinnedRate: "boolean" } } as const;

/** Returns the steps for a flow-control key: its limits are pinned, and null unpins them. */
export async function planKey(api: Api, key: string, given: GivenKey): Promise<ApplyStep[]> {
  const path = apiPath`/v2/flowControl/${key}`;
  const found = await readOrNull(api, path, keyNeeds);
  const shown = readLimits(found ?? {});
  const { paused, period, ...rest } = given;
  const wanted = { ...rest, ...(period !== undefined && { period: toSeconds(period) }) };
  const limits = compareFields(wanted, shown);
  const resource = `flowControl.${key}`;
  const steps: ApplyStep[] = [];
  const add = (
    verb: "pin" | "unpin" | "pause" | "resume",
    body: Fields,
    made: readonly Difference[] = [],
  ): void =>
    void steps.push({
      resource,
      action: found === null && steps.length === 0 ? "create" : actions[verb],
      differences: made,
      run: () => api.read({ ...jsonRequest("POST", `${path}/${verb}`, body), needs: keyNeeds }),
    });
  const isRemoved = ({ field }: Difference): boolean => given[field as keyof GivenKey] === null;
  const pinned = limits.filter((one) => !isRemoved(one));
  const unpinned = limits.filter(isRemoved);
  if (pinned.length > 0) add("pin", readPin(pinned, given), pinned);
  if (unpinned.length > 0)
    add("unpin", Object.fromEntries(unpinned.map(({ field }) => [field, true])), unpinned);
  if (paused !== undefined && paused !== (found?.["isPaused"] ?? false)) add(paused ? "pause" : "resume", {});
  return steps;
}

const actions = { pin: "change", unpin: "change", pause: "pause", resume: "resume" } as const;

/** Returns the limits to pin. A server pins rate and period together: an omitted one keeps its value. */
function readPin(differences: readonly Difference[], { parallelism, rate, period }: GivenKey): Fields {
  const names = new Set(differences.map(({ field }) => field));
  const isRate = names.has("rate") || names.has("period");
  return { ...(names.has("parallelism") && { parallelism }), ...(isRate && { rate, period }) };
}

/** A server shows a period in seconds, rounded up. */
const toSeconds = (period: string): string =>
  formatDuration(Math.ceil((parseDuration(period) ?? 0) / second) * second);

/** Returns the limits of a key that are pinned. */
const readLimits = (key: Fields): Fields => ({
  ...(key["isPinnedParallelism"] === true && { parallelism: key["parallelismMax"] }),
  ...(key["isPinnedRate"] === true && {
    rate: key["rateMax"],
    period: formatDuration((readNumber(key, "ratePeriod") ?? 0) * second),
  }),
});

const groupNeeds = { one: { name: "string", endpoints: "objects" } } as const;

/** Returns the steps for a URL group. Its endpoints are those of the file, and no others. */
export async function planGroup(api: Api, name: string, given: GivenGroup): Promise<ApplyStep[]> {
  const path = apiPath`/v2/topics/${name}`;
  const found = await readOrNull(api, path, groupNeeds);
  const shown = readObjects(found ?? {}, "endpoints").map((endpoint): GivenEndpoint => ({
    url: readRaw(endpoint, "url"),
    name: readRaw(endpoint, "name"),
  }));
  const added = given.endpoints.filter((one) => !shown.some((other) => isSame(one, other)));
  const removed = mergeEndpoints(shown, added).filter(
    (one) => !given.endpoints.some((other) => isSame(one, other)),
  );
  const resource = `urlGroups.${name}`;
  const steps: ApplyStep[] = [];
  const change = (differences: readonly Difference[], run: () => Promise<unknown>): void =>
    void steps.push({
      resource,
      action: found === null && steps.length === 0 ? "create" : "change",
      differences,
      run,
    });
  const endpoints = `${path}/endpoints`;
  if (added.length > 0)
    change(
      added.map((one) => ({ field: "endpoint", before: null, after: showEndpoint(one) })),
      () =>
        api.read({
          ...jsonRequest("POST", endpoints, { endpoints: added.map(toEndpoint) }),
          needs: groupNeeds,
        }),
    );
  if (removed.length > 0) {
    const named = removed.map((one) => (one.name === "" ? { url: one.url } : { name: one.name }));
    change(
      removed.map((one) => ({ field: "endpoint", before: showEndpoint(one), after: null })),
      () =>
        api.read({
          ...jsonRequest("DELETE", endpoints, { endpoints: named }),
          needs: { one: { removed: "number" } },
        }),
    );
  }
  const settings = given.settings ?? new Map();
  const headers = readObject(found ?? {}, "headers");
  const { differences } = compareSettings(settings, headers);
  if (differences.length > 0)
    change(differences, () =>
      api.read({
        ...jsonRequest("PATCH", path, { headers: mergeSettings(settings, headers) }),
        needs: groupNeeds,
      }),
    );
  return steps;
}

const isSame = (one: GivenEndpoint, other: GivenEndpoint): boolean =>
  one.url === other.url && one.name === other.name;

const showEndpoint = ({ url, name }: GivenEndpoint): string => (name === "" ? url : `${name} ${url}`);

const toEndpoint = ({ url, name }: GivenEndpoint): Fields => ({ url, ...(name !== "" && { name }) });

/** Returns the endpoints of a group after others were added. A name or a URL that exists is replaced. */
function mergeEndpoints(shown: readonly GivenEndpoint[], added: readonly GivenEndpoint[]): GivenEndpoint[] {
  const merged = [...shown];
  for (const one of added) {
    const named = merged.findIndex(({ name }) => name !== "" && name === one.name);
    const at = named >= 0 ? named : merged.findIndex(({ url }) => url === one.url);
    merged.splice(at >= 0 ? at : merged.length, at >= 0 ? 1 : 0, one);
  }
  return merged;
}

const scheduleNeeds = { one: { scheduleId: "string", cron: "string", isPaused: "boolean" } } as const;

/** Returns the steps for a schedule. */
export async function planSchedule(api: Api, id: string, given: GivenSchedule): Promise<ApplyStep[]> {
  const path = apiPath`/v2/schedules/${id}`;
  const shown = await readOrNull(api, path, scheduleNeeds);
  const resource = `schedules.${id}`;
  if (shown?.["damaged"] === true)
    throw new CommandFailed("failed", `${resource}: is damaged in the store; delete it and apply again`);
  const isPaused = shown?.["isPaused"] === true;
  const { paused = isPaused } = given;
  const step =
    shown === null ? planCreation(api, id, given) : planScheduleChange(api, { path, given, shown });
  const steps: ApplyStep[] = step === null ? [] : [{ ...step, resource }];
  const action = paused ? "pause" : "resume";
  if (paused !== isPaused)
    steps.push({
      resource,
      action,
      differences: [],
      run: () =>
        api.read({ method: "POST", path: `${path}/${action}`, needs: { one: { isPaused: "boolean" } } }),
    });
  return steps;
}

type ScheduleStep = Omit<ApplyStep, "resource">;

function planCreation(
  api: Api,
  id: string,
  { cron, destination, body, settings }: GivenSchedule,
): ScheduleStep {
  const given = settings ?? new Map();
  return {
    action: "create",
    differences: [
      ...compareFields({ cron, destination }, {}),
      ...(body ? [compareBody(body, {})] : []),
      ...compareSettings(given, {}).differences,
    ],
    run: () =>
      api.read({
        method: "POST",
        path: `/v2/schedules/${destination}`,
        headers: { ...listSettings(given), "Svc-Cron": cron, "Svc-Schedule-Id": id },
        body: body?.bytes ?? "",
        needs: { one: { scheduleId: "string" } },
      }),
  };
}

type ScheduleChange = { path: string; given: GivenSchedule; shown: Fields };

function planScheduleChange(api: Api, { path, given, shown }: ScheduleChange): ScheduleStep | null {
  const { cron, destination, body } = given;
  const fields = compareFields({ cron, destination }, shown);
  const isBodySame =
    body === undefined || matches(body.bytes, readRaw(shown, "body")) || isBinarySame(body, shown);
  const changes = compareSettings(given.settings ?? new Map(), readObject(shown, "settings"));
  const differences = [...fields, ...(isBodySame ? [] : [compareBody(body, shown)]), ...changes.differences];
  if (differences.length === 0) return null;
  const settings = {
    ...changes.settings,
    ...(fields.some(({ field }) => field === "cron") && { "Svc-Cron": cron }),
  };
  const request = jsonRequest("PATCH", path, {
    ...(Object.keys(settings).length > 0 && { settings }),
    ...(fields.some(({ field }) => field === "destination") && { destination }),
    ...(!isBodySame && { bodyBase64: body.bytes.toString("base64") }),
  });
  return {
    action: "change",
    differences,
    run: () => api.read({ ...request, needs: scheduleNeeds }),
  };
}

const isBinarySame = ({ bytes }: BodyValue, shown: Fields): boolean =>
  readRaw(shown, "bodyBase64") === bytes.toString("base64") && bytes.length > 0;

function compareBody({ bytes, isSecret }: BodyValue, shown: Fields): Difference {
  const existed = shown["body"] !== undefined || shown["bodyBase64"] !== undefined;
  if (isSecret || shown["bodyBase64"] !== undefined) return hiddenDifference("body", existed);
  return { field: "body", before: existed ? readRaw(shown, "body") : null, after: bytes.toString() };
}
