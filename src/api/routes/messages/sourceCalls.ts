import { hash } from "node:crypto";
import { z } from "zod";
import { Refusal } from "../../../core/values/errors.ts";
import { limits, spans } from "../../../core/values/limits.ts";
import type { MessageInput } from "../../../core/model/message.ts";
import type { PublishResult } from "../../../core/commands/publish.ts";
import { shouldNoteAcceptance } from "../../../core/commands/source.ts";
import { listSenderHeaders } from "../../settings/forward.ts";
import { readPublishRequest } from "../../publishing/read.ts";
import type { SourceCall } from "../../publishing/rejections.ts";
import { storeRejection } from "../../publishing/rejections.ts";
import type { RouteResponse, IncomingRequest, RouteContext, Route } from "../../route/route.ts";
import { readSourceDefaults } from "../../publishing/sourceSettings.ts";
import type { VerificationResult, WebhookCall } from "../../webhooks/verification.ts";
import { verificationSchema, verify } from "../../webhooks/verification.ts";
import { toStatus } from "./publish.ts";

const acceptedSchema = z.object({ messageId: z.string().describe("The id of the message."), deduplicated: z.literal(true).optional() });

const makeSourceCallRoute = (method: "POST" | "GET", description: Pick<Route, "summary" | "about" | "body" | "answers">): Route => ({
  method,
  path: "/v2/in/{secret}",
  tag: "Sources",
  access: "source",
  params: z.object({}),
  query: z.object({}),
  ...description,
  unaudited: "it publishes, which the log of messages tells",
  refusals: ["unauthorized", "not-found", "unavailable"],
  respond: (incoming, context) => respondToCall(method, incoming, context),
});

/** The URLs of sources. Whoever calls one can publish what its source is for, and do nothing else: no setting is taken from a call. */
export const sourceCalls = [
  makeSourceCallRoute("POST", {
    summary: "Call a source",
    about:
      "What senders of webhooks call. The body and the headers go to the destination of the source as they came; credentials, settings and the query of the call do not.",
    body: { about: "Any bytes.", contentType: "*/*", schema: z.string(), required: false, maxBytes: limits.messageBytes },
    answers: {
      200: {
        about: "The message is stored. For a URL group: a list. To a handshake: what the sender asked for.",
        schema: z.union([acceptedSchema, z.array(acceptedSchema)]),
      },
      202: {
        about: "The same event was accepted before, so nothing new was stored.",
        schema: z.union([acceptedSchema, z.array(acceptedSchema)]),
      },
    },
  }),
  makeSourceCallRoute("GET", {
    summary: "Answer the handshake of a sender",
    about: "Senders ask so before they send events. Nothing is published.",
    answers: { 200: { about: "What the sender asked for.", schema: z.unknown() } },
  }),
];

async function respondToCall(method: "POST" | "GET", incoming: IncomingRequest, context: RouteContext): Promise<RouteResponse> {
  const { source, target, origin, rawHeaders, body, params } = incoming;
  if (!source) throw new Error("intake: a call without a source was let in");
  if (source.paused) return pausedAnswer;
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

type AcceptedCall = Extract<VerificationResult, { kind: "accepted" }>;

const seeOwner = "the owner of this URL can see why";

/** Senders try again after a 5xx, and give up after a 4xx. */
const pausedAnswer: RouteResponse = {
  status: 503,
  headers: { "Retry-After": "60" },
  body: { error: "call: not accepted at the moment; try again later" },
};

const verifySourceCall = ({ source: { verification }, call }: SourceCall): VerificationResult =>
  verification === null ? { kind: "accepted", eventId: null } : verify(verificationSchema.parse(verification), call);

/** A GET that is no handshake. Some senders, and people with a browser, look whether there is anything before they send. */
async function respondToProbe(sourceCall: SourceCall): Promise<RouteResponse> {
  if (sourceCall.source.verification === null) return { status: 200, body: { ready: true } };
  await storeRejection(sourceCall, "method: GET is for handshakes; let the sender call with POST");
  throw new Refusal("invalid", `method: GET is not accepted; ${seeOwner}`);
}

async function publishCall(sourceCall: SourceCall, event: AcceptedCall): Promise<RouteResponse> {
  const { context, source } = sourceCall;
  const input = await readCallInput(sourceCall, event).catch((error: unknown) => refuseCall(sourceCall, error));
  const noting = shouldNoteAcceptance(source, context.now()) ? noteAcceptance(sourceCall) : null;
  const publishing = context.store.execute("publish", { account: source.account, inputs: [input], maxQueues: context.maxQueues });
  const [result] = await publishing.catch((error: unknown) =>
    isAccountRefusal(error) ? refuseCall(sourceCall, error) : Promise.reject(error),
  );
  await noting;
  if (result && "refused" in result) return refuseCall(sourceCall, new Refusal(result.refused, result.message));
  return { status: toStatus(result), body: toPublishedIds(result) };
}

/** Its owner may not publish at the moment. */
const isAccountRefusal = (error: unknown): boolean => error instanceof Refusal && error.code === "forbidden";

/** What became of a call is told by its answer, whether or not it could be noted. */
async function noteAcceptance({ context, source: { account, id } }: SourceCall): Promise<void> {
  await context.store.execute("noteAcceptance", { account, id }).catch(() => undefined);
}

/** The call as a letter. Of its headers only those go along that say nothing of this server, and that nobody is let in by. */
async function readCallInput({ source, secret, incoming, context }: SourceCall, event: AcceptedCall): Promise<MessageInput> {
  const headers = listSenderHeaders(incoming.rawHeaders, { by: "header", token: secret }).filter(([name]) => name !== "Cookie");
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
  return source.deduplicate ? { ...input, ...toDeduplication(source.id, event, input) } : input;
}

/** By what a repetition of an event is known: the id of the sender, or else its signature with the topic. */
function toDeduplication(
  sourceId: string,
  { eventId, signed }: AcceptedCall,
  { deduplicationWindow }: MessageInput,
): Partial<MessageInput> {
  if (!signed) return eventId === null ? {} : { deduplication: hashDeduplicationKey(sourceId, eventId) };
  const { signature, topic } = signed;
  return {
    deduplication: hashDeduplicationKey(sourceId, "signature", signature, topic),
    deduplicationWindow: deduplicationWindow ?? spans.signature,
    signed: { key: hashDeduplicationKey(sourceId, "signature", signature), topic: hash("sha256", topic, "base64url").slice(0, 22) },
  };
}

const hashDeduplicationKey = (...context: readonly string[]): string => `s:${hash("sha256", context.join(" "), "hex")}`;

/**
 * Keeps why a call cannot be published, and refuses it. Where its owner can mend it, the sender is to come again. The
 * reasons tell of the destination, so a third party gets none of them.
 */
async function refuseCall(sourceCall: SourceCall, error: unknown): Promise<never> {
  if (!(error instanceof Refusal) || error.code === "unavailable") throw error;
  await storeRejection(sourceCall, error.message);
  const isSenderFault = error.code === "invalid" || error.code === "too-large";
  throw new Refusal(isSenderFault ? error.code : "unavailable", `call: it cannot be published; ${seeOwner}`);
}

/** Ids alone: the endpoints of a group are nothing that a third party is told. */
function toPublishedIds(result: PublishResult | undefined): unknown {
  if (!result || "refused" in result) throw new Error("intake: a letter has no answer");
  const one = ({ messageId, deduplicated }: { messageId: string; deduplicated: boolean }): z.output<typeof acceptedSchema> => ({
    messageId,
    ...(deduplicated ? { deduplicated: true as const } : {}),
  });
  return "each" in result ? result.each.map(one) : one(result);
}
