import { z } from "zod";
import {
  findPulledOrigin,
  normalizeOrigin,
  readOriginHost,
} from "../../../engine/core/accounts/pulledOrigins.ts";
import { assertMayReceive } from "../../../engine/core/model/rights.ts";
import { parseDuration } from "../../../engine/core/values/duration.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { limits } from "../../../engine/core/values/limits.ts";
import { second } from "../../../engine/core/values/time.ts";
import { parseUrl } from "../../../engine/core/values/url.ts";
import type { PulledAttempt } from "../../../engine/delivery/pullers.ts";
import { describeBody } from "../accounts/accounts.ts";
import { singleText } from "../../http/parameters.ts";
import { readObject } from "../../route/readObject.ts";
import { route } from "../../route/route.ts";
import { readScope } from "../../route/scope.ts";
import { isAckTimeout } from "../../settings/settingTexts.ts";

const tag = "Pulled messages";

const aboutOrigin = "The scheme, the host and the port if it has one, such as https://worker.internal.";
const origin = z.string("is missing or not a string").describe(aboutOrigin);

const originSchema = z.strictObject({ origin });

const set = route({
  method: "PUT",
  path: "/v2/pulled",
  tag,
  summary: "Declare a pulled origin",
  about:
    "Messages to this origin are then not sent. They wait until a client asks for them with " +
    `POST /v2/pull. An account has at most ${limits.pulledOrigins} such origins. Messages that are being ` +
    "sent are not affected. Both schemes of a host are one: http:// and https:// are pulled together.",
  body: describeBody("The origin.", originSchema),
  answers: { 200: { about: "The origin is pulled.", schema: z.object({ origin }) } },
  refusals: ["limit-exceeded", "conflict"],
  handle: async ({ account, incoming, context }) => {
    const name = normalizeOrigin(readObject(originSchema, incoming).origin);
    return {
      status: 200,
      body: await context.store.execute("addPulledOrigin", { account: account.id, name }),
    };
  },
});

const list = route({
  method: "GET",
  path: "/v2/pulled",
  tag,
  summary: "List the pulled origins",
  answers: {
    200: {
      about: "The origins.",
      schema: z.object({ origins: z.array(z.object({ origin })).describe("The origins, by name.") }),
    },
  },
  refusals: [],
  handle: async ({ account, context }) => {
    const { pulled } = (await context.store.read.account(account.id)) ?? account;
    return { status: 200, body: { origins: (pulled?.origins ?? []).map((name) => ({ origin: name })) } };
  },
});

const remove = route({
  method: "DELETE",
  path: "/v2/pulled",
  tag,
  summary: "Remove a pulled origin",
  about:
    "Waiting messages are then sent. Attempts that clients hold stay held, and can be reported. Pulls that " +
    "wait are answered at once, as those of an origin that is not pulled.",
  query: z.object({ origin: singleText().describe(aboutOrigin) }),
  answers: {
    200: {
      about: "Messages to the origin are sent.",
      schema: z.object({ removed: z.literal(1).describe("The number of removed origins: always 1.") }),
    },
  },
  refusals: ["not-found"],
  handle: async ({ account, query, context }) => {
    const name = normalizeOrigin(query.origin);
    const { deleted } = await context.store.execute("removePulledOrigin", { account: account.id, name });
    if (!deleted) throw missing(name);
    context.pullers?.look(account.id, readOriginHost(name));
    return { status: 200, body: { removed: 1 } };
  },
});

const missing = (name: string): Refusal =>
  new Refusal("not-found", `origin: ${name} is not pulled; declare it with PUT /v2/pulled`);

const longestWait = `${limits.pullWait / second}s`;

const pullSchema = z.strictObject({
  origin,
  max: z
    .int("is not a whole number")
    .min(1, "must be at least 1")
    .max(limits.pulledAttempts, `must be at most ${limits.pulledAttempts}`)
    .default(1)
    .describe(`The maximum number of attempts, from 1 to ${limits.pulledAttempts}. Default: 1.`),
  wait: z
    .string("is not a string")
    .refine((text) => (parseDuration(text) ?? Infinity) <= limits.pullWait, {
      error: `must be a duration of at most ${longestWait}`,
    })
    .default("20s")
    .describe(`How long to wait for the first attempt, at most ${longestWait}. Default: 20s.`),
  lease: z
    .string("is not a string")
    .refine(isAckTimeout, "must be a duration from 1s to 12h")
    .default("5m")
    .describe("The time in which the outcome of each attempt must be reported, up to 12h. Default: 5m."),
});

const attemptSchema = z.object({
  attempt: z
    .string()
    .describe("The token of the attempt, for the header Svc-Attempt of POST /v2/attempts. Keep it secret."),
  messageId: z.string().describe("The id of the message."),
  until: z.int().describe("When the outcome must have been reported, in Unix milliseconds."),
  timeout: z.int().describe("The time limit of a request for this message, in milliseconds."),
  method: z.string().describe("The method of the request."),
  url: z.string().describe("The URL of the request."),
  headers: z
    .record(z.string(), z.array(z.string()))
    .describe("The headers of the request, the signature included: names to values."),
  bodyBase64: z.string().describe("The body of the request in base64."),
});

const pull = route({
  method: "POST",
  path: "/v2/pull",
  tag,
  summary: "Pull messages",
  about:
    "Waits for messages to a pulled origin, and returns attempts: the requests exactly as they would " +
    "have been sent. The client holds each attempt until it reports the outcome with " +
    "POST /v2/attempts. An attempt without a report in time has failed, and is retried like any other. " +
    "If the response cannot be sent, its attempts are given to another pull at once. A token needs the " +
    "verb receive, and its destinations must allow the whole origin, with the scheme that it was declared " +
    "with.",
  needs: "receive",
  waits: limits.pullWait,
  unaudited: "the log of each message records that it was pulled",
  body: describeBody("Which messages, and how many.", pullSchema),
  answers: {
    200: {
      about: "The attempts.",
      schema: z.object({
        attempts: z.array(attemptSchema).describe("The attempts. Empty if nothing came in time."),
      }),
    },
  },
  refusals: ["not-found", "forbidden", "busy", "stopping"],
  handle: async ({ account, incoming, context }) => {
    const { pullers, store, now } = context;
    const { max, wait, lease, ...request } = readObject(pullSchema, incoming);
    const name = normalizeOrigin(request.origin);
    const host = readOriginHost(name);
    const { scope } = readScope(incoming);
    const find = (owner: typeof account | null) => (owner ? findPulledOrigin(owner, host) : undefined);
    // The account of a token may be cached from before the origin was declared.
    const declared = find(account) ?? find(await store.read.account(account.id));
    if (scope) assertMayReceive(scope, declared ?? name);
    if (declared === undefined) throw missing(name);
    if (!pullers) throw new Refusal("busy", "pull: this server delivers no messages; use another");
    const hold = parseDuration(lease) ?? 0;
    const { attempts, isRemoved, end } = await pullers.pull({
      ...{ account: account.id, host, max, lease: hold },
      wait: parseDuration(wait) ?? 0,
      hasLeft: incoming.hasLeft ?? new AbortController().signal,
    });
    if (isRemoved) throw missing(name);
    const until = now() + hold;
    return {
      status: 200,
      headers: { "Cache-Control": "no-store" },
      body: { attempts: attempts.map((one) => attemptJson(one, until)) },
      onSent: end,
    };
  },
});

function attemptJson({ delivery: { message }, request, token }: PulledAttempt, until: number): object {
  const headers: Record<string, string[]> = Object.create(null) as Record<string, string[]>;
  for (let at = 0; at + 1 < request.headers.length; at += 2)
    (headers[request.headers[at] ?? ""] ??= []).push(request.headers[at + 1] ?? "");
  const { id: messageId, timeout, url } = message;
  return {
    ...{ attempt: token, messageId, until, timeout, method: request.method },
    url: `${parseUrl(url)?.origin}${request.path}`,
    headers,
    bodyBase64: Buffer.concat(request.body).toString("base64"),
  };
}

/** The routes of messages that clients pull. */
export const pulls = [set, list, remove, pull];
