import { z } from "zod";
import { toJson } from "../../api/fields/field.ts";
import { splitQuery, splitTarget } from "../../api/http/target.ts";
import { formatRefusal } from "../../api/http/remedies.ts";
import { readRedaction } from "../../api/publishing/keptSettings.ts";
import type { RouteContext } from "../../api/route/route.ts";
import { route } from "../../api/route/route.ts";
import { toSchema } from "../../api/views/fieldSchema.ts";
import type { WebhookSource } from "../../engine/core/model/webhookSource.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import { Refusal, toRefusal } from "../../engine/core/values/errors.ts";
import { getUnderlying } from "../../engine/store/auditActor.ts";
import { createSequencer } from "../../engine/store/batch/sequencer.ts";
import type { Store } from "../../engine/store/store.ts";
import { readCallInput, verifySourceCall } from "./calls.ts";
import { keptCallFields } from "./fields.ts";
import type { KeptCall } from "./keptCall.ts";
import { callKept, maxKeptCalls } from "./keptCall.ts";
import { maskSecret, redactCallHeaders } from "./rejections.ts";
import { requireSource } from "./routes.ts";
import { hour } from "../../engine/core/values/time.ts";

const rejectionsPath = "/v2/sources/{sourceId}/rejections";

const readNumber = ({ id }: KeptCall): number => Number(id.split("/")[1]);

const get = route({
  method: "GET",
  path: `${rejectionsPath}/{callId}`,
  tag: "Sources",
  summary: "Read a rejected call",
  about: "Returns a rejected call with its whole body, if its source keeps rejected calls.",
  params: z.object({ sourceId: z.string(), callId: z.string() }),
  answers: { 200: { about: "The call.", schema: toSchema(keptCallFields) } },
  refusals: ["not-found"],
  handle: async ({ account, params: { sourceId, callId }, context }) => {
    const source = await requireSource(context, account.id, sourceId);
    const number = /^(?:0|[1-9]\d{0,11})$/.test(callId) ? Number(callId) : -1;
    const call = await context.store.read.keptCall(account.id, source.id, number);
    if (!call || call.dueAt <= context.now())
      throw new Refusal(
        "not-found",
        `call: ${JSON.stringify(callId.slice(0, 200))} is not kept; ` +
          `calls are kept for ${callKept / hour} hours`,
      );
    const { time, dueAt, whole } = call;
    const { secret } = whole;
    return {
      status: 200,
      body: toJson(keptCallFields, {
        ...{ number, time, dueAt, callerIp: whole.callerIp },
        headers: redactCallHeaders(whole.headers, secret),
        body: maskSecret(whole.body, secret),
        redaction: readRedaction(source.headers),
      }),
    };
  },
});

type Sent = { sent: number; repeated: number; refused: { callId: string; reason: string }[] };

/** Publishes a kept call, verified as of the time at which it arrived. Throws `Refusal` if it is rejected. */
async function sendKept(
  source: WebhookSource,
  kept: KeptCall,
  context: RouteContext,
): Promise<keyof Sent | null> {
  const { url, secret, headers, body, callerIp } = kept.whole;
  const call = { method: "POST", url, headers, body, now: kept.time };
  const result = verifySourceCall({ source, call });
  if (result.kind === "rejected") throw new Refusal("unauthorized", result.reason);
  // The response to a handshake is of no use any more.
  if (result.kind === "answered") return null;
  const [, origin = "", path = "/"] = /^(\w+:\/\/[^/?]*)(.*)$/s.exec(url) ?? [];
  const target = splitTarget(path);
  const incoming = {
    ...{ target, query: splitQuery(target.query), proof: null, source, rawHeaders: headers, origin },
    ...{ params: { secret }, body, callerIp },
  };
  const input = await readCallInput({ source, secret, incoming, context }, result);
  const published = await context.store.execute("sendKeptCall", {
    ...{ account: source.account, id: source.id, number: readNumber(kept), input },
    maxQueues: context.maxQueues,
  });
  if (published === null) return null;
  if ("refused" in published) throw toRefusal(published);
  const all = "each" in published ? published.each : [published];
  return all.every(({ deduplicated }) => deduplicated) ? "repeated" : "sent";
}

const send = route({
  method: "POST",
  path: `${rejectionsPath}/send`,
  tag: "Sources",
  summary: "Send the rejected calls of a source",
  about:
    "Verifies the rejected calls that are kept whole, with the verification that the source has now and as " +
    "of the time at which each call arrived. Each accepted call is published once, the oldest first. " +
    `There are at most ${maxKeptCalls} calls. Use it after you have corrected a secret.`,
  params: z.object({ sourceId: z.string() }),
  answers: {
    200: {
      about: "The result.",
      schema: z.object({
        sent: z.int().min(0).describe("Number of calls that were published."),
        repeated: z
          .int()
          .min(0)
          .describe("Number of calls that the sender has repeated meanwhile. They were not published again."),
        refused: z
          .array(
            z.object({
              callId: z.string().describe("The id of the call."),
              reason: z.string().describe("Why the call is still rejected."),
            }),
          )
          .describe("The calls that are still rejected. They stay until their day is over."),
      }),
    },
  },
  refusals: ["not-found", "conflict", "busy"],
  handle: async ({ account, params, context }) => {
    const send = () => sendAll(context, account.id, params.sourceId);
    return { status: 200, body: await runInTurn(context.store, account.id, send) };
  },
});

/** Sends the kept calls of a source, one after another, so that other work comes between them. */
async function sendAll(context: RouteContext, account: AccountId, sourceId: string): Promise<Sent> {
  const source = await requireSource(context, account, sourceId);
  if (source.paused) throw new Refusal("conflict", "source: paused; resume it first");
  const body: Sent = { sent: 0, repeated: 0, refused: [] };
  for (const { number } of source.keptCalls ?? []) {
    await new Promise((resolve) => setImmediate(resolve));
    const one = await context.store.read.keptCall(account, source.id, number);
    if (!one || one.dueAt <= context.now()) continue;
    try {
      const done = await sendKept(source, one, context);
      if (done === "sent" || done === "repeated") body[done]++;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      body.refused.push({ callId: String(number), reason: formatRefusal(error) });
    }
  }
  return body;
}

/** The requests of one account that send calls: one runs, and one waits for it. */
const maxSending = 2;

type Turn = { count: number; run: ReturnType<typeof createSequencer> };
const turnsOf = new WeakMap<Store, Map<AccountId, Turn>>();

/**
 * Runs one request of an account after another, because each reads and verifies up to 16 MiB.
 * Throws `Refusal` if too many wait.
 */
async function runInTurn<T>(store: Store, account: AccountId, run: () => Promise<T>): Promise<T> {
  const turns = turnsOf.get(getUnderlying(store)) ?? new Map<AccountId, Turn>();
  turnsOf.set(getUnderlying(store), turns);
  const turn = turns.get(account) ?? { count: 0, run: createSequencer() };
  if (turn.count >= maxSending)
    throw new Refusal("busy", "source: rejected calls of this account are being sent; retry later");
  turns.set(account, turn);
  turn.count++;
  try {
    return await turn.run(run);
  } finally {
    if (--turn.count === 0) turns.delete(account);
  }
}

/** The routes of rejected calls that are kept whole. */
export const keptCalls = [get, send];
