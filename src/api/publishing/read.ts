import { Refusal } from "../../core/values/errors.ts";
import { limits } from "../../core/values/limits.ts";
import { checkUrlsWith, damagedGroupRefused } from "../../core/commands/urlGroup.ts";
import type { AccountId, Brand, Bytes, Group, HeaderList, Letter } from "../../core/model/message.ts";
import type { Store } from "../../store/store.ts";
import { brandOfToken, brandShown } from "../http/brand.ts";
import { sendersHeaders, tells } from "../settings/forward.ts";
import type { Given, Settings } from "../settings/grammar.ts";
import {
  givenByHeaders,
  givenByQuery,
  readAllSettings,
  refuseLoneWindow,
  refuseOfSchedules,
  refuseOfWorkflows,
} from "../settings/grammar.ts";
import type { Post } from "../settings/message.ts";
import { letterOf } from "../settings/message.ts";
import type { Incoming } from "../route/route.ts";
import type { Query } from "../http/target.ts";
import { checkUrl, destinationOf, groupNameIn, isDropped, isUrl, noDestination, splitQuery } from "../http/target.ts";
import { triggered, triggerLayers } from "./trigger.ts";
import { postedForRun } from "./workflowPost.ts";

/** What a request that publishes was read into. `ignored`: settings of the other brand that are unknown. */
export type Posting = { letter: Letter; settings: Settings; ignored: string[] };

/** `group`: the URL group that it goes to. */
type PostingTo = Posting & { group: Group | null };

/** Whose request it is, and where it goes. */
export type PostingOf = {
  /** The rest of the path as it came, without the query. */
  destination: string;
  account: AccountId;
  store: Store;
  queue?: string | null;
  /** Settings below those of the request, as names and values of headers. */
  defaults?: HeaderList;
  /** Settings that only schedules have are refused for messages. */
  for?: Purpose;
  /** Of a request that shows none. */
  brand?: Brand | undefined;
};

/** `kept`: what is published again and again, with settings that were given once. It is in no workflow run, nor is a schedule. */
export type Purpose = "messages" | "schedules" | "kept" | "triggers";

/**
 * Reads a request that publishes. A setting is looked for in its headers, its query, the defaults, and the default
 * headers of the URL group, and the first one found counts. Throws `Refusal`; with 404 where there is no such group.
 */
export async function readPosting(incoming: Incoming, of: PostingOf): Promise<PostingTo> {
  const { query, rawHeaders, body, callerIp, proof } = incoming;
  const purpose = of.for ?? (of.defaults ? "kept" : "messages");
  const destination = destinationOf(of.destination, query.rest);
  if (purpose === "triggers") checkUrl("destination", destination);
  const aimed = isUrl(destination) ? null : await groupAt(of.store, of.account, destination);
  if (aimed === null) checkUrl("destination", destination);
  else checkFanOut(aimed.group, { messages: 0, bytes: 0 }, body);
  const own = [givenByHeaders(rawHeaders), givenByQuery([...query.settings, ...(aimed?.settings ?? [])]), givenBy(of.defaults)];
  const ofGroup = givenBy(aimed?.group.headers);
  const shown = [...own.flat().map((one) => one.brand), ...brandsOfToken(query.tokenName)];
  const posting = postingFrom(purpose, [...own, ofGroup], {
    brand: brandFor([shown, ofGroup.map((one) => one.brand)], brandOtherwise(purpose, of.brand)),
    destination: aimed?.group.name ?? destination,
    query: aimed?.query ?? null,
    queue: of.queue ?? null,
    body,
    content: contentHeaders(rawHeaders, proof),
    senders: () => sendersHeaders(rawHeaders, proof),
    callerIp,
  });
  return { ...posting, group: aimed?.group ?? null };
}

/** Makes a posting of the settings that were given, in layers, and all else that came with them. Throws `Refusal`. */
export function postingFrom(purpose: Purpose, layers: readonly (readonly Given[])[], post: Omit<Post, "settings">): Posting {
  const isTrigger = purpose === "triggers";
  const { settings, ignored } = readAllSettings(...(isTrigger ? triggerLayers(layers, post.destination) : layers));
  // The last layer is that of the URL group, and what a source keeps is for the ids of its sender.
  if (purpose !== "kept") refuseLoneWindow(settings, layers.slice(0, -1).flat());
  if (purpose !== "schedules") refuseOfSchedules(settings);
  if (purpose === "schedules" || purpose === "kept") refuseOfWorkflows(settings);
  const letter = letterOf({ ...post, queue: post.queue ?? settings.values["queue-name"] ?? null, settings });
  return { letter: isTrigger ? triggered(letter, settings) : postedForRun(letter, settings), settings, ignored };
}

const nothing: readonly Given[] = [];

/** The settings among headers that are kept: those of a group, or of whatever has defaults of its own. */
export const givenBy = (headers: HeaderList | undefined): readonly Given[] => (headers?.length ? givenByHeaders(headers.flat()) : nothing);

/** Returns the brand that the first of these shows which shows any: what was asked, and after that the default headers of a URL group. */
export const brandFor = (shown: readonly (readonly Brand[])[], otherwise: Brand): Brand =>
  brandShown(shown.find((brands) => brands.length > 0) ?? [], otherwise);

/** Returns the brand that the name of a token parameter shows, or none. */
export function brandsOfToken(tokenName: string | null): readonly Brand[] {
  const brand = tokenName === null ? null : brandOfToken(tokenName);
  return brand === null ? [] : [brand];
}

/** The brand of a request that shows none. The client that a trigger speaks to knows one only. */
export const brandOtherwise = (purpose: Purpose, ofServer: Brand = "svc"): Brand => (purpose === "triggers" ? "upstash" : ofServer);

/** A URL group as a destination: `query` goes to its endpoints, without the settings and the token that were in it. */
export type GroupAimed = { group: Group; query: string | null } & Pick<Query, "settings" | "tokenName">;

/** The URL group that a destination names. Throws `Refusal`: 404 where there is none, 400 if the name is not possible, or the query does not fit into a URL. */
export async function groupAt(store: Store, account: AccountId, destination: string): Promise<GroupAimed> {
  const [, path = "", written] = /^([^?]*)(?:\?([^#]*))?/.exec(destination) ?? [];
  const name = groupNameIn(path);
  const group = name === null ? null : await store.read.setUp("groups", account, name);
  if (!group) throw noDestination(path);
  if (group.damaged) throw damagedGroupRefused(group.name);
  const { settings, tokenName, rest } = splitQuery(written ?? null);
  const query = rest === "" ? null : rest;
  if (query !== null) {
    checkUrlsWith(query, group);
    if (isDropped(query)) throw new Refusal("invalid", "destination: the query has control characters, or ends with a space; encode them");
  }
  return { group, query, settings, tokenName };
}

/** What the URL groups of one request come to: all of it is stored in one transaction. */
type FanOut = { messages: number; bytes: number };
const mostFanOut: FanOut = { messages: 10_000, bytes: limits.fanOutBytes };

/** Adds what a body makes, sent to each endpoint of a group, to what the request has `made` so far. Throws `Refusal` when that is too much. */
export function checkFanOut({ name, endpoints }: Group, made: FanOut, body: Bytes): void {
  const next = { messages: made.messages + endpoints.length, bytes: made.bytes + endpoints.length * body.length };
  const each = `for each of the ${endpoints.length} endpoints of ${name}`;
  if (next.messages > mostFanOut.messages)
    throw new Refusal("limit-exceeded", `destination: a message ${each}, the limit is ${mostFanOut.messages} for a request; send several`);
  if (next.bytes > mostFanOut.bytes)
    throw new Refusal("too-large", `body: ${body.length} bytes ${each}, the limit is ${mostFanOut.bytes} for all of a request together`);
  Object.assign(made, next);
}

/** What describes the bytes of the body goes where they go. */
function contentHeaders(rawHeaders: readonly string[], proof: Incoming["proof"]): HeaderList {
  const found: [string, string][] = [];
  for (const name of ["Content-Type", "Content-Encoding"]) {
    const at = rawHeaders.findIndex(
      (header, index) => index % 2 === 0 && header.length === name.length && header.toLowerCase() === name.toLowerCase(),
    );
    const value = rawHeaders[at + 1] ?? "";
    if (at >= 0 && !(proof && tells(value, proof.token))) found.push([name, value]);
  }
  return found;
}
