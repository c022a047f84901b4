import { hash } from "node:crypto";
import { z } from "zod";
import { Refusal } from "../../../core/values/errors.ts";
import { limits, spans } from "../../../core/values/limits.ts";
import type { Letter } from "../../../core/model/message.ts";
import type { PublishResult } from "../../../core/commands/publish.ts";
import { isAcceptanceNews } from "../../../core/commands/source.ts";
import { sendersHeaders } from "../../settings/forward.ts";
import { readPosting } from "../../publishing/read.ts";
import type { SourceCall } from "../../publishing/rejecting.ts";
import { keepRejected } from "../../publishing/rejecting.ts";
import type { Answer, Incoming, Parts, Route } from "../../route/route.ts";
import { defaultsOf } from "../../publishing/sourceSettings.ts";
import type { Verdict, WebhookCall } from "../../webhooks/verification.ts";
import { verificationSchema, verify } from "../../webhooks/verification.ts";
import { statusOf } from "./publish.ts";

const accepted = z.object({ messageId: z.string().describe("The id of the message."), deduplicated: z.literal(true).optional() });

const intakeBy = (method: "POST" | "GET", facts: Pick<Route, "summary" | "about" | "body" | "answers">): Route => ({
  ...{ method, path: "/v2/in/{secret}", tag: "Sources", access: "source", params: z.object({}), query: z.object({}), ...facts },
  unaudited: "it publishes, which the log of messages tells",
  refusals: ["unauthorized", "not-found", "unavailable"],
  answer: (incoming, parts) => answer(method, incoming, parts),
});

/** The URLs of sources. Whoever calls one can publish what its source is for, and do nothing else: no setting is taken from a call. */
export const intake = [
  intakeBy("POST", {
    summary: "Call a source",
    about:
      "What senders of webhooks call. The body and the headers go to the destination of the source as they came; credentials, settings and the query of the call do not.",
    body: { about: "Any bytes.", contentType: "*/*", schema: z.string(), required: false, mostBytes: limits.messageBytes },
    answers: {
      200: {
        about: "The message is stored. For a URL group: a list. To a handshake: what the sender asked for.",
        schema: z.union([accepted, z.array(accepted)]),
      },
      202: { about: "The same event was accepted before, so nothing new was stored.", schema: z.union([accepted, z.array(accepted)]) },
    },
  }),
  intakeBy("GET", {
    summary: "Answer the handshake of a sender",
    about: "Senders ask so before they send events. Nothing is published.",
    answers: { 200: { about: "What the sender asked for.", schema: z.unknown() } },
  }),
];

async function answer(method: "POST" | "GET", incoming: Incoming, parts: Parts): Promise<Answer> {
  const { source, target, origin, rawHeaders, body, params } = incoming;
  if (!source) throw new Error("intake: a call without a source was let in");
  if (source.paused) return pausedAnswer;
  const url = `${origin}${target.path}${target.query === null ? "" : `?${target.query}`}`;
  const call: WebhookCall = { method, url, headers: rawHeaders, body, now: parts.now() };
  const at: SourceCall = { source, secret: params["secret"] ?? "", call, incoming, parts };
  const verdict = verdictOn(at);
  if (verdict.kind === "answered") return verdict;
  if (verdict.kind === "rejected") {
    await keepRejected(at, verdict.reason);
    throw new Refusal("unauthorized", `call: not accepted; ${whoKnows}`);
  }
  return method === "GET" ? lookedAt(at) : take(at, verdict);
}

type Accepted = Extract<Verdict, { kind: "accepted" }>;

const whoKnows = "the owner of this URL can see why";

/** Senders try again after a 5xx, and give up after a 4xx. */
const pausedAnswer: Answer = {
  status: 503,
  headers: { "Retry-After": "60" },
  body: { error: "call: not accepted at the moment; try again later" },
};

const verdictOn = ({ source: { verification }, call }: SourceCall): Verdict =>
  verification === null ? { kind: "accepted", eventId: null } : verify(verificationSchema.parse(verification), call);

/** A GET that is no handshake. Some senders, and people with a browser, look whether there is anything before they send. */
async function lookedAt(at: SourceCall): Promise<Answer> {
  if (at.source.verification === null) return { status: 200, body: { ready: true } };
  await keepRejected(at, "method: GET is for handshakes; let the sender call with POST");
  throw new Refusal("invalid", `method: GET is not accepted; ${whoKnows}`);
}

async function take(at: SourceCall, event: Accepted): Promise<Answer> {
  const { parts, source } = at;
  const letter = await letterOf(at, event).catch((error: unknown) => refused(at, error));
  const noting = isAcceptanceNews(source, parts.now()) ? note(at) : null;
  const publishing = parts.store.execute("publish", { account: source.account, letters: [letter], mostQueues: parts.mostQueues });
  const [result] = await publishing.catch((error: unknown) => (isOfAccount(error) ? refused(at, error) : Promise.reject(error)));
  await noting;
  if (result && "refused" in result) return refused(at, new Refusal(result.refused, result.message));
  return { status: statusOf(result), body: publishedAs(result) };
}

/** Its owner may not publish at the moment. */
const isOfAccount = (error: unknown): boolean => error instanceof Refusal && error.code === "forbidden";

/** What became of a call is told by its answer, whether or not it could be noted. */
async function note({ parts, source: { account, id } }: SourceCall): Promise<void> {
  await parts.store.execute("noteAcceptance", { account, id }).catch(() => undefined);
}

/** The call as a letter. Of its headers only those go along that say nothing of this server, and that nobody is let in by. */
async function letterOf({ source, secret, incoming, parts }: SourceCall, event: Accepted): Promise<Letter> {
  const headers = sendersHeaders(incoming.rawHeaders, { by: "header", token: secret }).filter(([name]) => name !== "Cookie");
  const query = { token: null, tokenName: null, settings: [], rest: null };
  const call: Incoming = { ...incoming, query, rawHeaders: headers.flat(), proof: null };
  const { account, destination } = source;
  const { letter } = await readPosting(call, {
    destination,
    account,
    store: parts.store,
    brand: parts.brand,
    defaults: defaultsOf(source, parts),
  });
  return source.deduplicate ? { ...letter, ...knownBy(source.id, event, letter) } : letter;
}

/** By what a repetition of an event is known: the id of the sender, or else its signature with the topic. */
function knownBy(sourceId: string, { eventId, signed }: Accepted, { deduplicationWindow }: Letter): Partial<Letter> {
  if (!signed) return eventId === null ? {} : { deduplication: keyOf(sourceId, eventId) };
  const { signature, topic } = signed;
  return {
    deduplication: keyOf(sourceId, "signature", signature, topic),
    deduplicationWindow: deduplicationWindow ?? spans.signature,
    signed: { key: keyOf(sourceId, "signature", signature), topic: hash("sha256", topic, "base64url").slice(0, 22) },
  };
}

const keyOf = (...parts: readonly string[]): string => `s:${hash("sha256", parts.join(" "), "hex")}`;

/**
 * Keeps why a call cannot be published, and refuses it. Where its owner can mend it, the sender is to come again. The
 * reasons tell of the destination, so a third party gets none of them.
 */
async function refused(at: SourceCall, error: unknown): Promise<never> {
  if (!(error instanceof Refusal) || error.code === "unavailable") throw error;
  await keepRejected(at, error.message);
  const isSenders = error.code === "invalid" || error.code === "too-large";
  throw new Refusal(isSenders ? error.code : "unavailable", `call: it cannot be published; ${whoKnows}`);
}

/** Ids alone: the endpoints of a group are nothing that a third party is told. */
function publishedAs(result: PublishResult | undefined): unknown {
  if (!result || "refused" in result) throw new Error("intake: a letter has no answer");
  const one = ({ messageId, deduplicated }: { messageId: string; deduplicated: boolean }): z.output<typeof accepted> => ({
    messageId,
    ...(deduplicated ? { deduplicated: true as const } : {}),
  });
  return "each" in result ? result.each.map(one) : one(result);
}
