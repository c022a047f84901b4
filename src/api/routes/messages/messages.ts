import { z } from "zod";
import { isId } from "../../../engine/core/values/ids.ts";
import type { NotDone } from "../../../engine/core/values/errors.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { spans } from "../../../engine/core/values/limits.ts";
import type { AccountId } from "../../../engine/core/values/basics.ts";
import type { Store } from "../../../engine/store/store.ts";
import type { MessageView } from "../../../engine/store/catalog/queries.ts";
import { dryRunSchema, dryRunParameter } from "../../publishing/dryRun.ts";
import { cancelEntries, meansAll } from "../lists/bulk.ts";
import { boundedCount, wholeNumber } from "../../http/parameters.ts";
import type { RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { messageStatusFields } from "../../fields/messageStatus.ts";
import { toSchema } from "../../views/fieldSchema.ts";
import { messageStatusJson } from "../../views/messageStatus.ts";
import { detailsParameter, notDoneSchema } from "../../views/schemas.ts";
import { shorten } from "../../http/target.ts";

import { chosenMessageFilters, toChosenFilter } from "./unfinished.ts";

const byId = z.object({ messageId: z.string() });
const cancelledSchema = z.object({
  cancelled: z.int().min(0).describe("Number of unfinished messages that were cancelled."),
});
const cancelledManySchema = cancelledSchema.extend({ failed: notDoneSchema });

const get = route({
  method: "GET",
  path: "/v2/messages/{messageId}",
  tag: "Messages",
  summary: "Read a message",
  about: "A message can be read as long as its log or its dead letter is kept.",
  params: byId,
  answers: { 200: { about: "The message.", schema: toSchema(messageStatusFields) } },
  refusals: ["not-found"],
  handle: async ({ account, params, context: { store, now, isOnHold } }) => {
    const view = await findMessage(store, account.id, params.messageId);
    if (!view) {
      const id = JSON.stringify(params.messageId.slice(0, 200));
      throw new Refusal("not-found", `message: there is no message ${id}; its log may have been removed`);
    }
    const waitState = view.state && (await store.read.waitState(account.id, params.messageId));
    const situation = { now: now(), isOnHold: isOnHold?.() ?? false };
    return { status: 200, body: messageStatusJson(view, waitState, situation) };
  },
});

const sendNow = route({
  method: "POST",
  path: "/v2/messages/{messageId}/send-now",
  tag: "Messages",
  summary: "Send a message now",
  about:
    "Makes a message due now that waits for its delay or its next retry. Limits, pauses and the order of " +
    "its queue still hold it. The number of its retries stays the same.",
  params: byId,
  answers: {
    200: {
      about: "The message is due.",
      schema: z.object({
        messageId: z.string().describe("The id of the message."),
        changed: z
          .boolean()
          .describe("Whether its due time was changed. False if it was due already, or is being sent."),
      }),
    },
  },
  refusals: ["not-found"],
  handle: async ({ account, params: { messageId }, context }) => {
    const sent = isId(messageId)
      ? await context.store.execute("sendNow", { account: account.id, messageId })
      : null;
    if (!sent) throw makeFinishedRefusal(messageId);
    return { status: 200, body: { messageId, changed: sent.changed } };
  },
});

const endAttempt = route({
  method: "POST",
  path: "/v2/messages/{messageId}/end-attempt",
  tag: "Messages",
  summary: "End the running attempt of a message",
  about:
    "Closes the connection of the running attempt, for example because its destination hangs. The message " +
    "is then sent again after its retry delay, within all limits and at its place in its queue. " +
    "The attempt uses up no retry, and no callback reports it. The log shows the error `ended by " +
    "operator`. The destination may have received the message. " +
    "The request names the attempt, so a repeated request never ends the next one.",
  params: byId,
  query: z.object({
    attempt: wholeNumber().describe(
      "The number of the running attempt: `attempt` in `waitingOn` of the message. The first one is 0.",
    ),
  }),
  answers: {
    200: {
      about: "The attempt is ended, or does not run.",
      schema: z.object({
        messageId: z.string().describe("The id of the message."),
        ended: z
          .boolean()
          .describe("False if this attempt does not run, or had been ended before. Then nothing changes."),
      }),
    },
  },
  refusals: ["not-found"],
  handle: async ({ account, params: { messageId }, query: { attempt }, context: { store } }) => {
    if (!(await findMessage(store, account.id, messageId))) throw makeFinishedRefusal(messageId);
    const attempts = [{ messageId, attempt }];
    const { ended } = await store.execute("endAttempts", { account: account.id, attempts });
    return { status: 200, body: { messageId, ended: ended > 0 } };
  },
});

const cancel = route({
  method: "DELETE",
  path: "/v2/messages/{messageId}",
  tag: "Messages",
  summary: "Cancel a message",
  about:
    "Cancels an unfinished message. If it is being sent, the request is aborted, but may have reached the " +
    "destination. The message keeps its slots in its queue and under its flow-control key until that " +
    "request has ended. The log then shows CANCELLED. " +
    "A message that a workflow run waits for cannot be cancelled; cancel the run instead.",
  params: byId,
  answers: {
    200: {
      about: "1 if the message was cancelled, 0 if it was finished or cancelled shortly before.",
      schema: cancelledSchema,
    },
  },
  refusals: ["not-found"],
  handle: async ({ account, params, context }) => {
    const messageIds = [params.messageId].filter(isId);
    const { cancelled } = await context.store.execute("cancel", { account: account.id, messageIds });
    if (cancelled === 0)
      await assertNotOfRun(context, await readCancellable(context, account.id, params.messageId));
    return { status: 200, body: { cancelled } };
  },
});

/** Throws `Refusal` for a message that an active run waits for. */
async function assertNotOfRun(
  { store }: RouteContext,
  { message: { id, account, run: part }, state }: MessageView,
): Promise<void> {
  if (!part || !state || state.run === null) return;
  const activeRun = await store.read.activeRun(account, part.runId);
  if (activeRun?.run.id !== part.run) return;
  const path = `/v2/workflows/runs/${encodeURIComponent(part.runId)}`;
  throw new Refusal(
    "invalid",
    `message: ${id} belongs to an active workflow run; cancel the run with DELETE ${path}`,
  );
}

/** The maximum number of messages that one request cancels. */
const maxCancelled = 1_000_000;

const cancelMany = route({
  method: "DELETE",
  path: "/v2/messages",
  runsManyBatches: true,
  tag: "Messages",
  summary: "Cancel many messages",
  instead: "GET lists unfinished messages, and POST /v2/publish/{destination} creates one",
  about:
    "Cancels unfinished messages, oldest first: those with the given ids, or those that match all filters. " +
    "Without a filter, every unfinished message matches. " +
    "Messages of workflow runs are skipped; cancel the run instead. " +
    "With ids and `details=true`, `failed` names the messages that were not cancelled, and why. " +
    `One request cancels at most ${maxCancelled} messages.`,
  query: chosenMessageFilters.extend({
    count: boundedCount({ max: 500, defaultCount: meansAll }).describe(
      "The maximum number of messages to cancel, from 1 to 500. Without it, all matching messages are " +
        `cancelled. ${meansAll} also means all, because clients send that value for all. Ignored if ` +
        "messageIds is given.",
    ),
    ...dryRunParameter,
    ...detailsParameter,
  }),
  answers: {
    200: {
      about: "The number of cancelled messages. With dryRun=true, the number that would be cancelled.",
      schema: z.union([cancelledManySchema, dryRunSchema]),
    },
  },
  refusals: [],
  handle: ({ account, query, context }) => {
    const named = query.messageIds && [...new Set(query.messageIds)];
    const filter = toChosenFilter({ ...query, ...(named && { messageIds: named }) });
    return cancelEntries(context, {
      account,
      selection: { action: "messages.cancel", filter: { ...filter, belongsToRun: false } },
      query,
      maxCancelled,
      named: named
        ? {
            entries: named.filter(isId).map((id) => ({ id })),
            unknown: named.filter((id) => !isId(id)).map(describeUnknown),
          }
        : null,
    });
  },
});

const describeUnknown = (id: string): NotDone => ({ id: shorten(id), reason: "the message does not exist" });

/** Returns a message that is unfinished, or whose end is known. */
async function findMessage(store: Store, account: AccountId, id: string): Promise<MessageView | null> {
  const view = isId(id) ? await store.read.message(account, id) : null;
  return view && (view.state !== null || view.finishedAt !== null) ? view : null;
}

/**
 * Returns a message that is unfinished or finished less than `spans.grace` ago. Throws `Refusal` for any
 * other id.
 */
async function readCancellable(
  { store, now }: RouteContext,
  account: AccountId,
  id: string,
): Promise<MessageView> {
  const view = await findMessage(store, account, id);
  if (view && now() - (view.finishedAt ?? now()) <= spans.grace) return view;
  throw makeFinishedRefusal(id);
}

const makeFinishedRefusal = (id: string): Refusal =>
  new Refusal(
    "not-found",
    `message: there is no unfinished message ${JSON.stringify(id.slice(0, 200))}; ` +
      "GET /v2/messages/{messageId} reads a finished one",
  );

/** The routes of messages. */
export const messages = [get, sendNow, endAttempt, cancel, cancelMany];
