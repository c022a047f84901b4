import { z } from "zod";
import { isId } from "../../../engine/core/values/ids.ts";
import type { ErrorCode } from "../../../engine/core/values/errors.ts";
import { toFailedMember, Refusal } from "../../../engine/core/values/errors.ts";
import type { Account } from "../../../engine/core/model/account.ts";
import type { Millis } from "../../../engine/core/values/basics.ts";
import type { Overrides } from "../../../engine/core/deadLetters/overrides.ts";
import { expandOverrides, listOverrideUrls } from "../../../engine/core/deadLetters/overrides.ts";
import { findSendingRefusal } from "../../../engine/core/limits/sendingLimits.ts";
import { retentionFor } from "../../../engine/core/accounts/retention.ts";
import { dryRunSchema } from "../../publishing/dryRun.ts";
import { readEntries } from "../lists/failedRunLists.ts";
import { listHeaderSettings, listQuerySettings, readChanges } from "../../settings/grammar.ts";
import { readOverrides } from "../../settings/message.ts";
import type { IncomingRequest, RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { checkMayReadToSend } from "../../route/scope.ts";
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
  handle: async ({ account, params, incoming, context }) => {
    const { overrides, ignored } = readRetryChanges(incoming, account, context.now());
    const { responses, refused } = await retryAll(context, {
      account,
      overrides,
      dlqIds: [params.dlqId].filter(isId),
    });
    const [response] = responses;
    const [refusal] = [
      ...refused,
      ...(response ? [] : await explainNotRetried(context, account, [params.dlqId])),
    ];
    if (refusal) throw refusal.error;
    return { status: 201, body: response, ignored };
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
    const { responses, refused, stoppedAt } = await retryAll(context, { account, overrides, dlqIds: ids });
    const seen = new Set([...responses, ...refused].map(({ dlqId }) => dlqId));
    // After a storage failure, the reasons why other entries were not retried cannot be read.
    const unseen =
      stoppedAt === null ? [...new Set(listChosenIds(query))].filter((dlqId) => !seen.has(dlqId)) : [];
    const failed = [...refused, ...(await explainNotRetried(context, account, unseen))].map(
      ({ dlqId, error }) => ({
        id: shorten(dlqId),
        reason: error.message,
      }),
    );
    const next = stoppedAt === null ? (cursor ?? "") : cursorAfter(stoppedAt);
    return { status: 201, body: { cursor: next, responses, ...toFailedMember(failed) }, ignored };
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
  checkMayReadToSend(incoming, "a message with its body", listOverrideUrls(overrides));
  const { delay = null, notBefore = null } = overrides;
  const broken = findSendingRefusal(account, { ...expandOverrides(overrides), delay, notBefore }, now);
  if (broken) throw new Refusal(broken.refused, broken.message);
  return { overrides, ignored };
}

type Portion = { account: Account; overrides: Overrides; dlqIds: readonly string[] };

/**
 * Retries dead letters in portions. If a portion fails after others succeeded, returns the results of the
 * earlier portions, and their last id as `stoppedAt`. If the client continues from there and the error
 * persists, the first portion fails and the response reports the error.
 */
async function retryAll(context: RouteContext, { account, overrides, dlqIds }: Portion) {
  const done: RetryResult = { responses: [], refused: [] };
  let stoppedAt: string | null = null;
  for (const portion of splitPortions([...new Set(dlqIds)])) {
    try {
      const { responses, refused } = await retryPortion(context, { account, overrides, dlqIds: portion });
      done.responses.push(...responses);
      done.refused.push(...refused);
    } catch (error) {
      if (done.responses.length === 0 || stoppedAt === null) throw error;
      return { ...done, stoppedAt };
    }
    stoppedAt = portion.at(-1) ?? stoppedAt;
  }
  return { ...done, stoppedAt: null };
}

type RetryResult = { responses: z.output<typeof retriedSchema>[]; refused: NotRetried[] };
type NotRetried = { dlqId: string; error: Refusal };

/** Refusals that may concern a single dead letter. */
const concernsOne: ReadonlySet<ErrorCode> = new Set(["invalid", "limit-exceeded", "forbidden"]);

/**
 * Retries one portion in a transaction. If the transaction is refused, retries each dead letter in its own
 * transaction. Throws errors that do not concern a single dead letter.
 */
async function retryPortion(
  context: RouteContext,
  { account, overrides, dlqIds }: Portion,
): Promise<RetryResult> {
  const input = {
    account: account.id,
    dlqIds,
    logRetention: retentionFor(account, context.retention).log,
    overrides,
  };
  try {
    const all = await context.store.execute("retryDeadLetters", input);
    return { responses: all.map(({ dlqId, messageId }) => ({ messageId, dlqId })), refused: [] };
  } catch (error) {
    if (!(error instanceof Refusal) || !concernsOne.has(error.code)) throw error;
    const [dlqId = "", ...others] = dlqIds;
    if (others.length === 0) return { responses: [], refused: [{ dlqId, error }] };
  }
  const done: RetryResult = { responses: [], refused: [] };
  for (const dlqId of dlqIds) {
    const { responses, refused } = await retryPortion(context, { account, overrides, dlqIds: [dlqId] });
    done.responses.push(...responses);
    done.refused.push(...refused);
  }
  return done;
}

/** The maximum number of dead letters in one portion. Their bodies are in memory at the same time. */
const maxTogether = 4;

const splitPortions = (ids: readonly string[]): string[][] =>
  Array.from({ length: Math.ceil(ids.length / maxTogether) }, (_, at) =>
    ids.slice(at * maxTogether, (at + 1) * maxTogether),
  );

/** Returns why dead letters were not retried: they do not exist, or they are workflow runs. */
async function explainNotRetried(
  context: RouteContext,
  account: Account,
  dlqIds: readonly string[],
): Promise<NotRetried[]> {
  if (dlqIds.length === 0) return [];
  const filter = { dlqIds: dlqIds.filter(isId), belongsToRun: true };
  const { entries } = await readEntries(context, account.id, { filter, count: dlqIds.length, bodies: false });
  const ofRuns = new Set(entries.map(({ deadLetter }) => deadLetter.id));
  return dlqIds.map((dlqId) => ({
    dlqId,
    error: ofRuns.has(dlqId) ? makeRunRefusal(dlqId) : makeNotFound(dlqId),
  }));
}

function makeRunRefusal(dlqId: string): Refusal {
  const alternatives =
    `use POST /v2/workflows/dlq/resume/${dlqId} to continue it ` +
    `or POST /v2/workflows/dlq/restart/${dlqId} to start over`;
  return new Refusal("invalid", `dlqId: ${dlqId} is a workflow run; ${alternatives}`);
}

/** The routes that retry dead letters. */
export const deadLetterRetries = [retry, retryMany];
