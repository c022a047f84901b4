import { z } from "zod";
import { isId } from "../../../engine/core/values/ids.ts";
import { toFailedMember, Refusal, throwIfRefused } from "../../../engine/core/values/errors.ts";
import type { Account } from "../../../engine/core/model/account.ts";
import type { Millis } from "../../../engine/core/values/basics.ts";
import type { Overrides } from "../../../engine/core/deadLetters/overrides.ts";
import { expandOverrides, listOverrideUrls } from "../../../engine/core/deadLetters/overrides.ts";
import { findSendingRefusal } from "../../../engine/core/limits/sendingLimits.ts";
import { retentionFor } from "../../../engine/core/accounts/retention.ts";
import { dryRunSchema } from "../../publishing/dryRun.ts";
import { runBulk } from "../lists/bulk.ts";
import { readEntries } from "../lists/failedRunLists.ts";
import { listHeaderSettings, listQuerySettings, readChanges } from "../../settings/grammar.ts";
import { readOverrides } from "../../settings/message.ts";
import type { IncomingRequest, RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { assertMayReadToSend } from "../../route/scope.ts";
import { notDoneSchema } from "../../views/schemas.ts";
import { shorten } from "../../http/target.ts";
import {
  byId,
  countSelected,
  listChosenIds,
  makeNotFound,
  selectEntries,
  selectionSchema,
} from "./deadLetterSelection.ts";

const retriedSchema = z.object({
  messageId: z.string().describe("Id of the new message."),
  dlqId: z.string().describe("Id of the dead letter that was retried. It does not exist any more."),
});
const aboutRetry =
  "The new message has a new id, and the body, headers and settings of the failed one. " +
  "Settings of this request replace them, one by one. " +
  "A callback that is given with its URL replaces the old callback as a whole. " +
  "Parts that are redacted stay redacted, so a new callback is refused: it would report them.";

const retry = route({
  method: "POST",
  path: "/v2/dlq/retry/{dlqId}",
  tag: "Dead letter queue",
  summary: "Retry a dead letter",
  about: `Publishes the message again and deletes the dead letter. ${aboutRetry}`,
  settings: "retry",
  params: byId,
  answers: { 201: { about: "The message was published again.", schema: retriedSchema } },
  refusals: ["not-found", "limit-exceeded", "storage-quota-exceeded", "disk-low", "forbidden"],
  handle: async ({ account, params: { dlqId }, incoming, context }) => {
    const { overrides, ignored } = readRetryChanges(incoming, account, context.now());
    if (isId(dlqId)) {
      const logRetention = retentionFor(account, context.retention).log;
      const input = { account: account.id, dlqIds: [dlqId], logRetention, overrides };
      const [retried] = await context.store.execute("retryDeadLetters", input);
      if (retried) return { status: 201, body: { messageId: retried.messageId, dlqId }, ignored };
    }
    const [refusal] = await explainNotRetried(context, account, [dlqId]);
    throw refusal ?? makeNotFound(dlqId);
  },
});

const retryMany = route({
  method: "POST",
  path: "/v2/dlq/retry",
  runsManyBatches: true,
  tag: "Dead letter queue",
  summary: "Retry many dead letters",
  about:
    "Retries the dead letters with the given ids, or those that match all filters, oldest first. " +
    `Without a filter, every dead letter of a message matches. ${aboutRetry} ` +
    "A dead letter that cannot be retried stays. The member `failed` has the reason, " +
    "for example that the message has more retries than the account may now use. " +
    "If the storage fails after some messages were published, the response has these and a cursor.",
  settings: "retry",
  query: selectionSchema,
  answers: {
    201: {
      about: "The new messages. With dryRun=true, the number of messages that would be published.",
      schema: z.union([
        z.object({
          cursor: z.string().describe("Cursor of the next request. Empty at the end."),
          responses: z.array(retriedSchema).describe("New messages, in the order of their dead letters."),
          failed: notDoneSchema,
        }),
        dryRunSchema,
      ]),
    },
  },
  refusals: ["limit-exceeded", "storage-quota-exceeded", "disk-low", "forbidden"],
  handle: async ({ account, query, incoming, context }) => {
    const { overrides, ignored } = readRetryChanges(incoming, account, context.now());
    if (query.dryRun === "true")
      return {
        status: 201,
        body: await countSelected(context, account, { query, only: { belongsToRun: false } }),
        ignored,
      };
    const { ids, cursor, cursorAfter } = await selectEntries(context, account, query);
    const entries = [...new Set(ids)].map((id) => ({ id }));
    const request = { account, action: "dlq.retry", entries, overrides } as const;
    const { results, refused, stoppedAt } = await runBulk(context, request);
    const seen = new Set([...results, ...refused].map(({ id }) => id));
    // After a storage failure, the reasons why other entries were not retried cannot be read.
    const unseen = stoppedAt === null ? [...new Set(listChosenIds(query))].filter((id) => !seen.has(id)) : [];
    const reasons = await explainNotRetried(context, account, unseen).catch((error: unknown) => {
      if (results.length === 0) throw error;
      return [];
    });
    const unretried = unseen.map((id, at) => ({
      id: shorten(id),
      reason: reasons[at]?.message ?? "not retried; the reason could not be read",
    }));
    const body = {
      cursor: stoppedAt === null ? (cursor ?? "") : cursorAfter(stoppedAt),
      responses: results.map(({ id, became }) => ({ messageId: became, dlqId: id })),
      ...toFailedMember([...refused, ...unretried]),
    };
    return { status: 201, body, ignored };
  },
});

/**
 * Reads the settings that a retry changes. Throws `Refusal` for settings that no message of the account may
 * have. No dead letter has been changed at that time.
 */
export function readRetryChanges(
  incoming: IncomingRequest,
  account: Account,
  now: Millis,
): { overrides: Overrides; ignored: string[] } {
  const { rawHeaders, query } = incoming;
  const { settings, ignored } = readChanges(
    listHeaderSettings(rawHeaders),
    listQuerySettings(query.settings),
  );
  const overrides = readOverrides(settings);
  assertMayReadToSend(incoming, "a message with its body", listOverrideUrls(overrides));
  const { delay = null, notBefore = null } = overrides;
  throwIfRefused(findSendingRefusal(account, { ...expandOverrides(overrides), delay, notBefore }, now));
  return { overrides, ignored };
}

/** Returns why each of these dead letters was not retried: it does not exist, or is a workflow run. */
async function explainNotRetried(
  context: RouteContext,
  account: Account,
  dlqIds: readonly string[],
): Promise<Refusal[]> {
  if (dlqIds.length === 0) return [];
  const filter = { dlqIds: dlqIds.filter(isId), belongsToRun: true };
  const { entries } = await readEntries(context, account.id, { filter, count: dlqIds.length, bodies: false });
  const ofRuns = new Set(entries.map(({ deadLetter }) => deadLetter.id));
  return dlqIds.map((dlqId) => (ofRuns.has(dlqId) ? makeRunRefusal(dlqId) : makeNotFound(dlqId)));
}

function makeRunRefusal(dlqId: string): Refusal {
  const alternatives =
    `use POST /v2/workflows/dlq/resume/${dlqId} to continue it ` +
    `or POST /v2/workflows/dlq/restart/${dlqId} to start over`;
  return new Refusal("invalid", `dlqId: ${dlqId} is a workflow run; ${alternatives}`);
}

/** The routes that retry dead letters. */
export const deadLetterRetries = [retry, retryMany];
