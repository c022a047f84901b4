import { Refusal } from "../../core/values/errors.ts";
import { limits } from "../../core/values/limits.ts";
import { checkQueryLength, damagedGroupRefusal } from "../../core/commands/urlGroup.ts";
import type { AccountId, Brand, Bytes, UrlGroup, HeaderList, MessageInput } from "../../core/model/message.ts";
import type { Store } from "../../store/store.ts";
import { findTokenBrand, pickBrand } from "../http/brand.ts";
import { listSenderHeaders, containsToken } from "../settings/forward.ts";
import type { GivenSetting, MessageSettings } from "../settings/grammar.ts";
import {
  listHeaderSettings,
  listQuerySettings,
  readAllSettings,
  refuseLoneWindow,
  refuseScheduleSettings,
  refuseWorkflowSettings,
} from "../settings/grammar.ts";
import type { PostedMessage } from "../settings/message.ts";
import { toMessageInput } from "../settings/message.ts";
import type { IncomingRequest } from "../route/route.ts";
import type { Query } from "../http/target.ts";
import {
  checkUrl,
  parseDestination,
  parseGroupName,
  hasDroppedCharacters,
  isUrl,
  makeDestinationRefusal,
  splitQuery,
} from "../http/target.ts";
import { toTriggerInput, triggerLayers } from "./trigger.ts";
import { toRunInput } from "./workflowPost.ts";

/** What a request that publishes was read into. `ignored`: settings of the other brand that are unknown. */
export type PublishRequest = { input: MessageInput; settings: MessageSettings; ignored: string[] };

/** `group`: the URL group that it goes to. */
type PublishRequestToGroup = PublishRequest & { group: UrlGroup | null };

/** Whose request it is, and where it goes. */
export type PublishOptions = {
  /** The rest of the path as it came, without the query. */
  destination: string;
  account: AccountId;
  store: Store;
  queue?: string | null;
  /** Settings below those of the request, as names and values of headers. */
  defaults?: HeaderList;
  /** Settings that only schedules have are refused for messages. */
  purpose?: Purpose;
  /** Of a request that shows none. */
  brand?: Brand | undefined;
};

/** `kept`: what is published again and again, with settings that were given once. It is in no workflow run, nor is a schedule. */
export type Purpose = "messages" | "schedules" | "kept" | "triggers";

/**
 * Reads a request that publishes. A setting is looked for in its headers, its query, the defaults, and the default
 * headers of the URL group, and the first one found counts. Throws `Refusal`; with 404 where there is no such group.
 */
export async function readPublishRequest(incoming: IncomingRequest, options: PublishOptions): Promise<PublishRequestToGroup> {
  const { query, rawHeaders, body, callerIp, proof } = incoming;
  const purpose = options.purpose ?? (options.defaults ? "kept" : "messages");
  const destination = parseDestination(options.destination, query.rest);
  if (purpose === "triggers") checkUrl("destination", destination);
  const groupTarget = isUrl(destination) ? null : await findGroup(options.store, options.account, destination);
  if (groupTarget === null) checkUrl("destination", destination);
  else checkFanOut(groupTarget.group, { messages: 0, bytes: 0 }, body);
  const own = [
    listHeaderSettings(rawHeaders),
    listQuerySettings([...query.settings, ...(groupTarget?.settings ?? [])]),
    listKeptSettings(options.defaults),
  ];
  const groupLayer = listKeptSettings(groupTarget?.group.headers);
  const requestBrands = [...own.flat().map((one) => one.brand), ...listTokenBrands(query.tokenName)];
  const request = makePublishRequest(purpose, [...own, groupLayer], {
    brand: pickFirstBrand([requestBrands, groupLayer.map((one) => one.brand)], defaultBrand(purpose, options.brand)),
    destination: groupTarget?.group.name ?? destination,
    query: groupTarget?.query ?? null,
    queue: options.queue ?? null,
    body,
    content: readContentHeaders(rawHeaders, proof),
    senderHeaders: () => listSenderHeaders(rawHeaders, proof),
    callerIp,
  });
  return { ...request, group: groupTarget?.group ?? null };
}

/** Makes a posting of the settings that were given, in layers, and all else that came with them. Throws `Refusal`. */
export function makePublishRequest(
  purpose: Purpose,
  layers: readonly (readonly GivenSetting[])[],
  post: Omit<PostedMessage, "settings">,
): PublishRequest {
  const isTrigger = purpose === "triggers";
  const { settings, ignored } = readAllSettings(...(isTrigger ? triggerLayers(layers, post.destination) : layers));
  // The last layer is that of the URL group, and what a source keeps is for the ids of its sender.
  if (purpose !== "kept") refuseLoneWindow(settings, layers.slice(0, -1).flat());
  if (purpose !== "schedules") refuseScheduleSettings(settings);
  if (purpose === "schedules" || purpose === "kept") refuseWorkflowSettings(settings);
  const input = toMessageInput({ ...post, queue: post.queue ?? settings.values["queue-name"] ?? null, settings });
  return { input: isTrigger ? toTriggerInput(input, settings) : toRunInput(input, settings), settings, ignored };
}

const nothing: readonly GivenSetting[] = [];

/** The settings among headers that are kept: those of a group, or of whatever has defaults of its own. */
export const listKeptSettings = (headers: HeaderList | undefined): readonly GivenSetting[] =>
  headers?.length ? listHeaderSettings(headers.flat()) : nothing;

/** Returns the brand that the first of these shows which shows any: what was asked, and after that the default headers of a URL group. */
export const pickFirstBrand = (shown: readonly (readonly Brand[])[], fallback: Brand): Brand =>
  pickBrand(shown.find((brands) => brands.length > 0) ?? [], fallback);

/** Returns the brand that the name of a token parameter shows, or none. */
export function listTokenBrands(tokenName: string | null): readonly Brand[] {
  const brand = tokenName === null ? null : findTokenBrand(tokenName);
  return brand === null ? [] : [brand];
}

/** The brand of a request that shows none. The client that a trigger speaks to knows one only. */
export const defaultBrand = (purpose: Purpose, serverBrand: Brand = "svc"): Brand => (purpose === "triggers" ? "upstash" : serverBrand);

/** A URL group as a destination: `query` goes to its endpoints, without the settings and the token that were in it. */
export type GroupTarget = { group: UrlGroup; query: string | null } & Pick<Query, "settings" | "tokenName">;

/** The URL group that a destination names. Throws `Refusal`: 404 where there is none, 400 if the name is not possible, or the query does not fit into a URL. */
export async function findGroup(store: Store, account: AccountId, destination: string): Promise<GroupTarget> {
  const [, path = "", written] = /^([^?]*)(?:\?([^#]*))?/.exec(destination) ?? [];
  const name = parseGroupName(path);
  const group = name === null ? null : await store.read.findResource("urlGroups", account, name);
  if (!group) throw makeDestinationRefusal(path);
  if (group.damaged) throw damagedGroupRefusal(group.name);
  const { settings, tokenName, rest } = splitQuery(written ?? null);
  const query = rest === "" ? null : rest;
  if (query !== null) {
    checkQueryLength(query, group);
    if (hasDroppedCharacters(query))
      throw new Refusal("invalid", "destination: the query has control characters, or ends with a space; encode them");
  }
  return { group, query, settings, tokenName };
}

/** What the URL groups of one request come to: all of it is stored in one transaction. */
type FanOut = { messages: number; bytes: number };
const maxFanOut: FanOut = { messages: 10_000, bytes: limits.fanOutBytes };

/** Adds what a body makes, sent to each endpoint of a group, to what the request has `made` so far. Throws `Refusal` when that is too much. */
export function checkFanOut({ name, endpoints }: UrlGroup, total: FanOut, body: Bytes): void {
  const next = { messages: total.messages + endpoints.length, bytes: total.bytes + endpoints.length * body.length };
  const each = `for each of the ${endpoints.length} endpoints of ${name}`;
  if (next.messages > maxFanOut.messages)
    throw new Refusal("limit-exceeded", `destination: a message ${each}, the limit is ${maxFanOut.messages} for a request; send several`);
  if (next.bytes > maxFanOut.bytes)
    throw new Refusal("too-large", `body: ${body.length} bytes ${each}, the limit is ${maxFanOut.bytes} for all of a request together`);
  Object.assign(total, next);
}

/** What describes the bytes of the body goes where they go. */
function readContentHeaders(rawHeaders: readonly string[], proof: IncomingRequest["proof"]): HeaderList {
  const found: [string, string][] = [];
  for (const name of ["Content-Type", "Content-Encoding"]) {
    const at = rawHeaders.findIndex(
      (header, index) => index % 2 === 0 && header.length === name.length && header.toLowerCase() === name.toLowerCase(),
    );
    const value = rawHeaders[at + 1] ?? "";
    if (at >= 0 && !(proof && containsToken(value, proof.token))) found.push([name, value]);
  }
  return found;
}
