import { hash } from "node:crypto";
import { z } from "zod";
import { readPublishRequest } from "../../api/publishing/read.ts";
import { listResultDestinations, noteRefusedHosts } from "../../api/publishing/refusedHosts.ts";
import { readSourceDefaults } from "../../api/publishing/sourceSettings.ts";
import type { IncomingRequest, Route, RouteContext, RouteResponse } from "../../api/route/route.ts";
import { noteUnstored } from "../../api/route/unpublished.ts";
import { toStatus } from "../../api/routes/messages/publish.ts";
import { listSenderHeaders } from "../../api/settings/forward.ts";
import type { PublishResult } from "../../engine/core/commands/publish.ts";
import type { MessageInput } from "../../engine/core/model/message.ts";
import type { WebhookSource } from "../../engine/core/model/webhookSource.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { isUnavailable, Refusal, toRefusal } from "../../engine/core/values/errors.ts";
import { spans } from "../../engine/core/values/limits.ts";
import { shouldNoteAcceptance } from "./commands.ts";
import { callKept } from "./keptCall.ts";
import { type SourceCall, storeRejection } from "./rejections.ts";
import {
  type VerificationResult,
  verificationSchema,
  verify,
  type WebhookCall,
} from "./schemes/verification.ts";
import { formatRefusal } from "../../api/http/remedies.ts";

const acceptedSchema = z.object({
  messageId: z.string().describe("Id of the message."),
  deduplicated: z
    .literal(true)
    .optional()
    .describe("Present if the event was accepted before. The id is that of the earlier message."),
});

const makeSourceCallRoute = (
  method: "POST" | "GET",
  description: Pick<Route, "summary" | "about" | "body" | "answers">,
): Route => ({
  method,
  path: "/v2/in/{secret}",
  tag: "Sources",
  access: "source",
  params: z.object({}),
  query: z.object({}),
  ...description,
  unaudited: "publishes messages, which the message log records",
  refusals: ["unauthorized", "not-found", "unavailable"],
  respond: (incoming, context) => respondToCall(method, incoming, context),
});

/**
 * The routes that senders call. A caller can publish to the destination of the source, and do nothing else:
 * no setting is taken from a call.
 */
export const sourceCalls = [
  makeSourceCallRoute("POST", {
    summary: "Call a source",
    about:
      "Called by a sender of webhooks. The body and the headers are delivered unchanged to the destination " +
      "of the source. Credentials, settings and the query of the call are not delivered.",
    body: {
      about: "Body of the call: any bytes.",
      contentType: "*/*",
      schema: z.string(),
      required: false,
      maxBytes: { messages: 1 },
    },
    answers: {
      200: {
        about:
          "The message is stored. For a URL group, the response is a list. " +
          "The response to a handshake has the form that the sender expects.",
        schema: z.union([acceptedSchema, z.array(acceptedSchema)]),
      },
      202: {
        about: "The event was accepted before, so nothing new was stored.",
        schema: z.union([acceptedSchema, z.array(acceptedSchema)]),
      },
    },
  }),
  makeSourceCallRoute("GET", {
    summary: "Respond to the handshake of a sender",
    about: "Some senders check a source with this request before they send events. Nothing is published.",
    answers: { 200: { about: "The response that the sender expects.", schema: z.unknown() } },
  }),
];

async function respondToCall(
  method: "POST" | "GET",
  incoming: IncomingRequest,
  context: RouteContext,
): Promise<RouteResponse> {
  const { source, target, origin, rawHeaders, body, params } = incoming;
  if (!source) throw new Error("source call: the request has no source");
  if (source.paused) throw makePausedRefusal();
  const url = `${origin}${target.path}${target.query === null ? "" : `?${target.query}`}`;
  const call: WebhookCall = { method, url, headers: rawHeaders, body, now: context.now() };
  const sourceCall: SourceCall = { source, secret: params["secret"] ?? "", call, incoming, context };
  const result = verifySourceCall(sourceCall);
  if (result.kind === "answered") return result;
  if (result.kind === "rejected") {
    await storeRejection(sourceCall, result.reason);
    throw new Refusal("unauthorized", `call: not accepted; ${seeOwner}`);
  }
  return method === "GET" ? respondToProbe(sourceCall) : publishCall(sourceCall, result);
}

export type AcceptedCall = Extract<VerificationResult, { kind: "accepted" }>;

const seeOwner = "the owner of this URL can see why";

/** Returns the refusal while a source is paused. Senders retry after a 5xx, and give up after a 4xx. */
const makePausedRefusal = (): Refusal =>
  new Refusal("unavailable", "call: not accepted at the moment; retry later", { retryAfter: 60 });

/** Verifies a call as of the time at which it arrived. */
export const verifySourceCall = ({
  source: { verification },
  call,
}: Pick<SourceCall, "source" | "call">): VerificationResult =>
  verification === null
    ? { kind: "accepted", eventId: null }
    : verify(verificationSchema.parse(verification), call);

/**
 * Responds to a GET that is not a handshake. Some senders, and people with a browser, check the URL before
 * they send.
 */
async function respondToProbe(sourceCall: SourceCall): Promise<RouteResponse> {
  if (sourceCall.source.verification === null) return { status: 200, body: { ready: true } };
  await storeRejection(
    sourceCall,
    "method: GET is only valid for handshakes; configure the sender to use POST",
  );
  throw new Refusal("invalid", `method: GET is not accepted; ${seeOwner}`);
}

async function publishCall(sourceCall: SourceCall, event: AcceptedCall): Promise<RouteResponse> {
  const { context, source } = sourceCall;
  const input = await readCallInput(sourceCall, event).catch((error: unknown) =>
    refuseCall(sourceCall, error),
  );
  const noting = shouldNoteAcceptance(source, context.now()) ? noteAcceptance(sourceCall) : null;
  const publishing = context.store.execute("publish", {
    account: source.account,
    inputs: [input],
    source: source.id,
    maxQueues: context.maxQueues,
  });
  const [result] = await publishing.catch((error: unknown) =>
    isAccountRefusal(error) ? refuseCall(sourceCall, error) : Promise.reject(error),
  );
  await noting;
  if (result && "refused" in result) return refuseCall(sourceCall, toRefusal(result));
  noteRefusedHosts(context, source.account, listResultDestinations(input, result));
  noteUnstored(context, sourceCall.incoming, [result]);
  return { status: toStatus(result), body: toPublishedIds(result) };
}

/** Reports whether an error means that the owner of the source may not publish at the moment. */
const isAccountRefusal = (error: unknown): boolean => error instanceof Refusal && error.code === "forbidden";

/**
 * Stores the time of an accepted call. An error is ignored, because the response must report the call's
 * result.
 */
async function noteAcceptance({ context, source: { account, id } }: SourceCall): Promise<void> {
  await context.store.execute("noteAcceptance", { account, id }).catch(() => undefined);
}

/**
 * Returns the message that a call publishes. Headers that describe this server and headers with credentials
 * are not delivered.
 */
export async function readCallInput(
  { source, secret, incoming, context }: Omit<SourceCall, "call">,
  event: AcceptedCall,
): Promise<MessageInput> {
  const headers = listSenderHeaders(incoming.rawHeaders, { by: "header", token: secret }).filter(
    ([name]) => name !== "Cookie",
  );
  const query = { token: null, tokenName: null, settings: [], rest: null };
  const call: IncomingRequest = { ...incoming, query, rawHeaders: headers.flat(), proof: null };
  const { account, destination } = source;
  const { input } = await readPublishRequest(call, {
    destination,
    account,
    store: context.store,
    brand: context.brand,
    defaults: readSourceDefaults(source, context),
  });
  return source.deduplicate ? { ...input, ...toDeduplication(source, event, input) } : input;
}

/**
 * Returns the deduplication key of an event: the sender's event id, or else the signature with the topic. If
 * the source keeps rejected calls, its window is at least as long as these are kept. Otherwise an event that
 * its sender repeated would be published again when the kept call is sent.
 */
function toDeduplication(
  { id: sourceId, keepsRejected }: Pick<WebhookSource, "id" | "keepsRejected">,
  { eventId, signed }: AcceptedCall,
  { deduplicationWindow }: MessageInput,
): Partial<MessageInput> {
  const toWindow = (window: Millis): Millis => Math.max(window, keepsRejected ? callKept : 0);
  if (!signed)
    return eventId === null
      ? {}
      : {
          deduplication: hashDeduplicationKey(sourceId, eventId),
          deduplicationId: eventId,
          ...(keepsRejected && {
            deduplicationWindow: toWindow(deduplicationWindow ?? spans.deduplication),
          }),
        };
  const { signature, topic } = signed;
  return {
    deduplication: hashDeduplicationKey(sourceId, "signature", signature, topic),
    deduplicationWindow: toWindow(deduplicationWindow ?? spans.signature),
    signed: {
      key: hashDeduplicationKey(sourceId, "signature", signature),
      topic: hash("sha256", topic, "base64url").slice(0, 22),
    },
  };
}

const hashDeduplicationKey = (...context: readonly string[]): string =>
  `s:${hash("sha256", context.join(" "), "hex")}`;

/**
 * Stores why a call cannot be published, and refuses it. If the owner can fix the cause, the status asks the
 * sender to retry. The reason may reveal the destination, so the sender does not receive it.
 */
async function refuseCall(sourceCall: SourceCall, error: unknown): Promise<never> {
  if (!(error instanceof Refusal) || isUnavailable(error)) throw error;
  await storeRejection(sourceCall, formatRefusal(error));
  const isSenderFault = error.code === "invalid" || error.code === "too-large";
  throw new Refusal(isSenderFault ? error.code : "unavailable", `call: cannot be published; ${seeOwner}`);
}

/** Returns only the ids of messages, because a sender must not learn the endpoints of a URL group. */
function toPublishedIds(result: PublishResult | undefined): unknown {
  if (!result || "refused" in result) throw new Error("source call: the message has no result");
  const one = ({
    messageId,
    deduplicated,
  }: {
    messageId: string;
    deduplicated: boolean;
  }): z.output<typeof acceptedSchema> => ({
    messageId,
    ...(deduplicated ? { deduplicated: true as const } : {}),
  });
  return "each" in result ? result.each.map(one) : one(result);
}
