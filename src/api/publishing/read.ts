import { parseTraceContext, type TraceContext } from "../../engine/core/values/traceContext.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { limits } from "../../engine/core/values/limits.ts";
import { damagedRefusal } from "../../engine/core/decision/requireUndamaged.ts";
import { assertQueryLength } from "../../engine/core/sending/recipients.ts";
import type { AccountId, Brand, Bytes, HeaderList } from "../../engine/core/values/basics.ts";
import type { UrlGroup } from "../../engine/core/model/urlGroup.ts";
import type { MessageInput } from "../../engine/core/model/message.ts";
import type { Store } from "../../engine/store/store.ts";
import { findTokenBrand, pickBrand } from "../http/brand.ts";
import { listSenderHeaders, containsToken } from "../settings/forward.ts";
import type { RawSetting } from "../settings/rawSetting.ts";
import type { MessageSettings } from "../settings/grammar.ts";
import {
  listHeaderSettings,
  listQuerySettings,
  readAllSettings,
  assertNoLoneWindow,
  assertNoScheduleSettings,
  assertNoWorkflowSettings,
} from "../settings/grammar.ts";
import type { PostedMessage } from "../settings/message.ts";
import { toMessageInput } from "../settings/message.ts";
import type { IncomingRequest } from "../route/route.ts";
import type { Query } from "../http/target.ts";
import {
  assertUrl,
  parseDestination,
  parseGroupName,
  hasDroppedCharacters,
  isUrl,
  makeDestinationRefusal,
  splitQuery,
} from "../http/target.ts";
import { toTriggerInput, triggerLayers } from "./trigger.ts";
import { toRunInput } from "./workflowPost.ts";

/** A publish request that was read. `ignored`: the names of the unknown settings of the other brand. */
export type PublishRequest = { input: MessageInput; settings: MessageSettings; ignored: string[] };

/** A publish request with its URL group. `group` is null if the destination is a URL. */
type PublishRequestToGroup = PublishRequest & { group: UrlGroup | null };

/** How to read a publish request: its account, its destination and its defaults. */
export type PublishOptions = {
  /** The rest of the path as received, without the query. */
  destination: string;
  account: AccountId;
  store: Store;
  queue?: string | null;
  /** Settings that apply if the request does not have them, as names and values of headers. */
  defaults?: HeaderList;
  /** Decides which settings are valid. Default: `kept` with `defaults`, otherwise `messages`. */
  purpose?: Purpose;
  /** The brand of a request that does not show its brand. */
  brand?: Brand | undefined;
};

/**
 * The use of a publish request, which decides which settings are valid. `kept`: the settings were stored
 * earlier and are used for many messages, such as those of a source. Requests for `kept` and `schedules`
 * cannot belong to a workflow run. A request for `kept` cannot create a schedule.
 */
export type Purpose = "messages" | "schedules" | "kept" | "triggers";

/**
 * Reads a publish request. A setting is taken from the first of these that has it: the headers, the query,
 * the defaults, the default headers of the URL group. Throws `Refusal`, or rejects with it, with status 404
 * if the URL group does not exist. Returns a promise only for a URL group, because the promises of all steps
 * of a publish would cost more than reading it.
 */
export function readPublishRequest(
  incoming: IncomingRequest,
  options: PublishOptions,
): PublishRequestToGroup | Promise<PublishRequestToGroup> {
  const destination = parseDestination(options.destination, incoming.query.rest);
  if (options.purpose === "triggers") assertUrl("destination", destination);
  if (isUrl(destination)) {
    assertUrl("destination", destination);
    return readRequestTo(incoming, options, { destination, groupTarget: null });
  }
  return findGroup(options.store, options.account, destination).then((groupTarget) => {
    assertFanOut(groupTarget.group, { messages: 0, bytes: 0 }, incoming.body);
    return readRequestTo(incoming, options, { destination, groupTarget });
  });
}

function readRequestTo(
  { query, rawHeaders, body, callerIp, proof }: IncomingRequest,
  options: PublishOptions,
  { destination, groupTarget }: { destination: string; groupTarget: GroupTarget | null },
): PublishRequestToGroup {
  const purpose = options.purpose ?? (options.defaults ? "kept" : "messages");
  const own = [
    listHeaderSettings(rawHeaders),
    listQuerySettings([...query.settings, ...(groupTarget?.settings ?? [])]),
    listKeptSettings(options.defaults),
  ];
  const groupLayer = listKeptSettings(groupTarget?.group.headers);
  const requestBrands = [...own.flat().map((one) => one.brand), ...listTokenBrands(query.tokenName)];
  const request = makePublishRequest(purpose, [...own, groupLayer], {
    brand: pickFirstBrand(
      [requestBrands, groupLayer.map((one) => one.brand)],
      defaultBrand(purpose, options.brand),
    ),
    destination: groupTarget?.group.name ?? destination,
    query: groupTarget?.query ?? null,
    queue: options.queue ?? null,
    body,
    content: readContentHeaders(rawHeaders, proof),
    senderHeaders: () => listSenderHeaders(rawHeaders, proof),
    callerIp,
  });
  const trace = readTrace(rawHeaders, proof?.token);
  const input = trace === undefined ? request.input : { ...request.input, trace };
  return { ...request, input, group: groupTarget?.group ?? null };
}

/**
 * Returns a publish request from layers of settings and the other parts of a request. An earlier layer takes
 * precedence over a later one. Throws `Refusal`.
 */
export function makePublishRequest(
  purpose: Purpose,
  layers: readonly (readonly RawSetting[])[],
  post: Omit<PostedMessage, "settings">,
): PublishRequest {
  const isTrigger = purpose === "triggers";
  const { settings, ignored } = readAllSettings(
    ...(isTrigger ? triggerLayers(layers, post.destination) : layers),
  );
  // A deduplication window without an id is valid in the last layer, which is that of the URL group. It is
  // also valid in a source, because the sender gives the ids.
  if (purpose !== "kept") assertNoLoneWindow(settings, layers.slice(0, -1).flat());
  if (purpose !== "schedules") assertNoScheduleSettings(settings);
  if (purpose === "schedules" || purpose === "kept") assertNoWorkflowSettings(settings);
  const input = toMessageInput({
    ...post,
    queue: post.queue ?? settings.values["queue-name"] ?? null,
    settings,
  });
  return {
    input: isTrigger ? toTriggerInput(input, settings) : toRunInput(input, settings),
    settings,
    ignored,
  };
}

const nothing: readonly RawSetting[] = [];

/** Returns the settings among stored headers, such as the default headers of a URL group. */
export const listKeptSettings = (headers: HeaderList | undefined): readonly RawSetting[] =>
  headers?.length ? listHeaderSettings(headers.flat()) : nothing;

/**
 * Returns the brand of the first list that shows any brand, or the fallback. The list of the request must
 * precede the list of its URL group.
 */
export const pickFirstBrand = (shown: readonly (readonly Brand[])[], fallback: Brand): Brand =>
  pickBrand(shown.find((brands) => brands.length > 0) ?? [], fallback);

/** Returns the brand that the name of a token parameter shows, or an empty list. */
export function listTokenBrands(tokenName: string | null): readonly Brand[] {
  const brand = tokenName === null ? null : findTokenBrand(tokenName);
  return brand === null ? [] : [brand];
}

/**
 * Returns the brand of a request that does not show its brand. For triggers it is `upstash`, the only brand
 * that the client of triggers knows.
 */
export const defaultBrand = (purpose: Purpose, serverBrand: Brand = "svc"): Brand =>
  purpose === "triggers" ? "upstash" : serverBrand;

/**
 * A URL group as a destination. `query` is sent to its endpoints; settings and the token have been removed
 * from it.
 */
export type GroupTarget = { group: UrlGroup; query: string | null } & Pick<Query, "settings" | "tokenName">;

/**
 * Finds the URL group that a destination names. Throws `Refusal`: with 404 if it does not exist, with 400 if
 * the name is not valid or the query does not fit into a URL.
 */
export async function findGroup(store: Store, account: AccountId, destination: string): Promise<GroupTarget> {
  const [, path = "", queryText] = /^([^?]*)(?:\?([^#]*))?/.exec(destination) ?? [];
  const name = parseGroupName(path);
  const group = name === null ? null : await store.read.findResource("urlGroups", account, name);
  if (!group) throw makeDestinationRefusal(path);
  if (group.damaged) throw damagedRefusal("urlGroups", group.name);
  const { settings, tokenName, rest } = splitQuery(queryText ?? null);
  const query = rest === "" ? null : rest;
  if (query !== null) {
    assertQueryLength(query, group);
    if (hasDroppedCharacters(query))
      throw new Refusal(
        "invalid",
        "destination: the query has control characters, or ends with a space; encode them",
      );
  }
  return { group, query, settings, tokenName };
}

/** The messages that one request creates for URL groups, and the bytes of their bodies. */
type FanOut = { messages: number; bytes: number };
/** Limits for one request, because all of its messages are stored in one transaction. */
const maxFanOut: FanOut = { messages: 10_000, bytes: limits.fanOutBytes };

/**
 * Adds to the total of a request the messages and bytes of one body for all endpoints of a group. Throws
 * `Refusal` if the total would exceed `maxFanOut`.
 */
export function assertFanOut({ name, endpoints }: UrlGroup, total: FanOut, body: Bytes): void {
  const next = {
    messages: total.messages + endpoints.length,
    bytes: total.bytes + endpoints.length * body.length,
  };
  const each = `for each of the ${endpoints.length} endpoints of ${name}`;
  if (next.messages > maxFanOut.messages)
    throw new Refusal(
      "limit-exceeded",
      `destination: a message ${each}, the limit is ${maxFanOut.messages} per request; split the request`,
    );
  if (next.bytes > maxFanOut.bytes)
    throw new Refusal(
      "too-large",
      `body: ${body.length} bytes ${each}, the limit is ${maxFanOut.bytes} in total per request`,
    );
  Object.assign(total, next);
}

/**
 * Returns the trace context of a request or of one message of a batch. A tracestate with the token is left
 * out.
 */
export function readTrace(rawHeaders: readonly string[], token = ""): TraceContext | undefined {
  const parents = listValues(rawHeaders, "traceparent");
  if (parents.length === 0) return undefined;
  const states = listValues(rawHeaders, "tracestate");
  return parseTraceContext(
    parents,
    states.filter((state) => token === "" || !containsToken(state, token)),
  );
}

/** Returns the values of a header. This runs for each message, so the length is compared first. */
function listValues(rawHeaders: readonly string[], name: string): string[] {
  const values: string[] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const header = rawHeaders[at] ?? "";
    if (header.length === name.length && header.toLowerCase() === name) values.push(rawHeaders[at + 1] ?? "");
  }
  return values;
}

/** Returns the headers that describe the body. A header that contains the token is left out. */
function readContentHeaders(rawHeaders: readonly string[], proof: IncomingRequest["proof"]): HeaderList {
  const found: [string, string][] = [];
  for (const name of ["Content-Type", "Content-Encoding"]) {
    const [value] = listValues(rawHeaders, name.toLowerCase());
    if (value !== undefined && !(proof && containsToken(value, proof.token))) found.push([name, value]);
  }
  return found;
}
