import type { Decision, Draft, Key, Moment } from "../decision/command.ts";
import type { RemainingQuota, Refused } from "../values/errors.ts";
import { toRefusal } from "../values/errors.ts";
import { queueGate } from "../admission/gate.ts";
import { findLimiter } from "../admission/limiter.ts";
import { listHostKeysFor, listLimiterKeysFor } from "../admission/hints.ts";
import { accept } from "../sending/createMessage.ts";
import { damagedRefused } from "../decision/requireUndamaged.ts";
import { listRecipients } from "../sending/recipients.ts";
import { findBodyRefusal, findSendingRefusal } from "../limits/sendingLimits.ts";
import type { PostingCalls, StepInput } from "../workflows/history.ts";
import { findOngoingRun, postStep } from "../workflows/history.ts";
import { findHostRefusal } from "../accounts/allowedHosts.ts";
import { findBudgetRefusal } from "../limits/budget.ts";
import type { Deduplication } from "../model/deduplication.ts";
import { deduplicationEnd } from "../model/deduplication.ts";
import type { Account } from "../model/account.ts";
import type { AccountId, MessageId, Millis } from "../values/basics.ts";
import type { MessageInput } from "../model/message.ts";
import type { RunPost } from "../model/runPost.ts";
import type { DayLimit } from "../limits/dailyLimit.ts";
import {
  toRemainingQuota,
  makeDayLimitRefusal,
  readDayLimit,
  fitsDayLimit,
  saveDayLimit,
} from "../limits/dailyLimit.ts";
import type { QueueLimit } from "../limits/rowLimits.ts";
import { findQuotaRefusal } from "../limits/rowLimits.ts";
import { requireAccount, assertActive } from "../accounts/plans.ts";
import type { StartInput } from "../workflows/start.ts";
import { listNamedRuns, startRun } from "../workflows/start.ts";
import { findTopicRefusal } from "../limits/signedTopics.ts";
import { countBytes, countSourceCall } from "../accounts/usage.ts";
import { listRunUrls } from "../model/publishRights.ts";
import type { Scope } from "../model/rights.ts";
import { findScopeRefusal } from "../model/rights.ts";
import { findContentRefusal } from "../workflows/contentScope.ts";
import { findStorageRefusal } from "../limits/storageQuota.ts";

/**
 * A message that a publish created, or the older message that it repeats. `run` is the workflow run that was
 * started or continued. `url` is where the message goes. It is given for an older message and for a URL
 * group, unless the caller may not read it.
 */
export type Published = {
  messageId: MessageId;
  deduplicated: boolean;
  /** The deduplication id of a repeated message, as it was sent. */
  deduplicationId?: string | undefined;
  url?: string;
  run?: { runId: string; createdAt: Millis };
  /** The endpoint of the run may continue with the next step in the same call. */
  runsOn?: true;
};
/** The result of one input: a message, a message for each endpoint of a URL group, or a refusal. */
export type PublishResult = (Published | PublishedToEach | Refused) & {
  /** The requests that are left today, if the account has a limit of requests per day. */
  remainingQuota?: RemainingQuota | undefined;
};
type PublishedToEach = { each: readonly Published[] };

/**
 * Publishes messages and returns one result for each input, in the order of the inputs. A refused input does
 * not stop the others, unless it belongs to a workflow run: then `publish` throws a `Refusal` for the first
 * such input and stores nothing.
 *
 * An input for a URL group goes to all endpoints of the group, or to none. An input whose deduplication key
 * was used within its window creates no message and returns the older one. Each input beyond the account's
 * requests per day is refused. `scope` has the rights of a limited token. It is absent for other callers.
 * `source` is the source whose call is published, if it is one.
 */
export const publish: Decision<
  { account: AccountId; inputs: readonly MessageInput[]; scope?: Scope; source?: string } & QueueLimit,
  PublishResult[]
> = {
  hint: ({ account, inputs }) => {
    if (inputs.every(isPlain)) return { accounts: [[account]], hostWaitlists: listHostKeys(account, inputs) };
    const urlGroups: Key[] = [];
    const activeRuns: Key[] = [];
    const runIds: Key[] = [];
    for (const { group, post } of inputs) {
      if (group !== null) urlGroups.push([account, group]);
      if (post) activeRuns.push(...listNamedRuns(account, post));
      if (post?.kind === "start" && post.runId !== "") runIds.push([account, post.runId]);
    }
    const single = urlGroups.length === 0 ? inputs : inputs.filter(({ group }) => group === null);
    return {
      accounts: [[account]],
      limiters: listLimiterKeysFor(account, inputs),
      urlGroups,
      activeRuns,
      runIds,
      hostWaitlists: listHostKeys(account, single),
      deduplications: single.flatMap((input) => listDeduplicationKeys(account, input)),
    };
  },
  decide: ({ account: id, inputs, scope, source, maxQueues }, draft, moment) => {
    const account = requireAccount(draft.get("accounts", id));
    // A disabled account may continue the runs that it has: see `continuesRun`.
    if (account.state === "passive" && !inputs.every((input) => continuesRun(draft, id, input)))
      assertActive(account);
    const day = readDayLimit(draft, moment, account);
    const publishing = {
      draft,
      moment,
      account,
      posting: inputs.length > 1 ? new Map<string, MessageId>() : undefined,
    };
    const results = inputs.map((input, at) => {
      const result: PublishResult =
        (scope && findTokenRefusal(publishing, scope, input)) ||
        findQueueRefusal(publishing, input, maxQueues) ||
        (day ? publishWithinDayLimit(publishing, input, day) : publishOne(publishing, input));
      if (hasRunPost(input) && "refused" in result)
        throw toRefusal({
          ...result,
          message:
            inputs.length === 1 ? result.message : `message ${at + 1} of ${inputs.length}: ${result.message}`,
        });
      if (!("refused" in result)) countBytes(draft, id, { bytesIn: input.body.byteLength });
      return scope ? hideOlderUrls(scope, listRecipients(draft, id, input), result) : result;
    });
    if (day) saveDayLimit(draft, id, day);
    if (source !== undefined && !results.some((result) => "refused" in result))
      countSourceCall(draft, id, source);
    return results;
  },
};

/** Reports whether an input needs only the rows that every message needs, like most messages. */
const isPlain = ({ group, queue, flowControl, post, deduplication, signed }: MessageInput): boolean =>
  group === null &&
  queue === null &&
  flowControl === null &&
  post === undefined &&
  deduplication === null &&
  signed === undefined;

const listHostKeys = (account: AccountId, inputs: readonly MessageInput[]): Key[] =>
  listHostKeysFor(
    account,
    inputs.map(({ url }) => url),
  );

/** Returns the keys of the rows that recognize an input as a duplicate. */
function listDeduplicationKeys(account: AccountId, { deduplication, signed }: MessageInput): Key[] {
  const keys: Key[] = deduplication === null ? [] : [[account, deduplication]];
  if (signed) keys.push([account, signed.key]);
  return keys;
}

/**
 * The draft, moment and account of a publish, and the calls in which it posts steps, shared by all of its
 * inputs.
 */
type Publishing = { draft: Draft; moment: Moment; account: Account; posting: PostingCalls | undefined };

/** Removes the URLs of older messages from a result, unless the token may read them or sent the same URL. */
function hideOlderUrls(
  scope: Scope,
  sent: readonly Pick<MessageInput, "url">[],
  result: PublishResult,
): PublishResult {
  if ("refused" in result || scope.verbs.includes("read")) return result;
  const hideUrl = <P extends Published>(one: P, at: number): P => {
    if (one.url === sent[at]?.url) return one;
    const { url: _url, ...others } = one;
    return others as P;
  };
  return "each" in result ? { ...result, each: result.each.map(hideUrl) } : hideUrl(result, 0);
}

/**
 * Returns why the queue of an input cannot be created, or null. Returns null if the queue exists, if the
 * account may have another queue, or if all messages of the input are duplicates.
 */
function findQueueRefusal(
  publishing: Publishing,
  input: MessageInput,
  maxQueues: number | undefined,
): Refused | null {
  const { draft, account } = publishing;
  const { queue } = input;
  if (queue === null || findLimiter(draft, { account: account.id, gate: queueGate(queue) })) return null;
  if (areAllDuplicates(publishing, input)) return null;
  return findQuotaRefusal(draft, account, { name: "queues", maxQueues });
}

/** Publishes an input if the account has enough requests left today, and counts its requests. */
function publishWithinDayLimit(publishing: Publishing, input: MessageInput, day: DayLimit): PublishResult {
  const { account } = publishing;
  const requests = countRequests(publishing, input);
  if (requests > 0 && !fitsDayLimit(day, requests)) return makeDayLimitRefusal(account, day, requests);
  const result = publishOne(publishing, input);
  if (!("refused" in result)) day.used += requests;
  return { ...result, remainingQuota: toRemainingQuota(account, day) };
}

/**
 * Returns how many requests an input counts as. Duplicates do not count, and neither do inputs that continue
 * a run.
 */
function countRequests(publishing: Publishing, input: MessageInput): number {
  const { draft, account } = publishing;
  if (hasRunPost(input))
    return isPostedByRun(input) || draft.get("activeRuns", account.id, input.post.runId) ? 0 : 1;
  const inputs = input.group === null ? [input] : listRecipients(draft, account.id, input);
  return inputs.filter((one) => !findDuplicate(publishing, one)).length;
}

/**
 * Returns why the token may not publish an input, or null. The token needs rights for all endpoints of a
 * group.
 */
function findTokenRefusal(publishing: Publishing, scope: Scope, input: MessageInput): Refused | null {
  const { draft, account } = publishing;
  const all = listRecipients(draft, account.id, input);
  // The URL group does not exist or is empty; `publishOne` reports that.
  if (all.length === 0) return null;
  for (const one of all) {
    const refusal = findScopeRefusal(scope, one);
    if (refusal) return refusal;
  }
  return (
    (input.post && findRunRefusal(publishing, scope, input.post)) ??
    findContentRefusal(draft, { scope, account: account.id, input })
  );
}

/**
 * Returns why the token may not post for a run, or null. The endpoint of the run receives its whole history
 * with each step, so the token must be allowed to publish to that endpoint.
 */
function findRunRefusal({ draft, account }: Publishing, scope: Scope, post: RunPost): Refused | null {
  for (const [, runId] of listNamedRuns(account.id, post)) {
    const ongoing = findOngoingRun(draft, account.id, runId);
    const target = { group: null, queue: null, callback: null, failureCallback: null };
    const refusal =
      ongoing && findScopeRefusal(scope, { ...target, url: ongoing.run.url }, `the run ${runId}`);
    if (refusal) return refusal;
  }
  return null;
}

function publishOne(publishing: Publishing, input: MessageInput): PublishResult {
  const { draft, moment, account, posting } = publishing;
  const refusal = findAccountRefusal(publishing, input) ?? findLimitRefusal(account, input, moment);
  if (refusal) return refusal;
  if (hasRunPost(input))
    return isRunStart(input)
      ? startRun(draft, moment, { account, input })
      : postStep(draft, moment, { account, input, posting });
  const topicRefusal =
    input.signed && !areAllDuplicates(publishing, input)
      ? findTopicRefusal(draft, { now: moment.now, account: account.id, input })
      : null;
  if (topicRefusal) return topicRefusal;
  if (input.group === null) return acceptOnce(publishing, input);
  const all = listRecipients(draft, account.id, input);
  if (draft.inspect("urlGroups", account.id, input.group)?.damaged)
    return damagedRefused("urlGroups", input.group);
  if (all.length === 0)
    return {
      refused: "not-found",
      message: `destination: topic ${input.group} not found, or this URL group has no endpoints`,
    };
  const hostRefusal = findHostRefusal(
    account,
    all.map(({ url }) => url),
    input.group,
  );
  if (hostRefusal) return hostRefusal;
  return {
    each: all.map((one) => {
      const published = acceptOnce(publishing, one);
      return published.deduplicated ? published : Object.assign(published, { url: one.url });
    }),
  };
}

/**
 * Returns why an account may not publish an input now, or null. An input that continues a run is accepted
 * even if the account has spent its budget.
 */
function findAccountRefusal({ draft, moment, account }: Publishing, input: MessageInput): Refused | null {
  const { isDiskLow } = moment;
  if (!isDiskLow && account.spending === undefined && account.storedBytes === undefined) return null;
  const isContinuing = continuesRun(draft, account.id, input);
  return (
    (isContinuing ? null : findBudgetRefusal(account, moment.now)) ??
    findStorageRefusal(account, { continuesRun: isContinuing, isDiskLow })
  );
}

const isRunStart = (input: StartInput | StepInput): input is StartInput => input.post.kind === "start";
const hasRunPost = (input: MessageInput): input is StartInput | StepInput => input.post !== undefined;

function acceptOnce(publishing: Publishing, input: MessageInput): Published {
  const { draft, moment, account } = publishing;
  const key = input.deduplication;
  const older = findDuplicate(publishing, input);
  if (older) {
    const duplicate = {
      messageId: older.messageId,
      deduplicated: true,
      deduplicationId: input.deduplicationId,
    };
    return older.made.url === undefined ? duplicate : { ...duplicate, url: older.made.url };
  }
  const { id: messageId } = accept(draft, moment, { account, input });
  if (key !== null)
    draft.put("deduplications", {
      account: account.id,
      key,
      messageId,
      expiresAt: deduplicationEnd(moment.now, input),
      made: { at: moment.now, url: input.url },
    });
  return { messageId, deduplicated: false };
}

/** Reports whether an input would create no message. A group without endpoints counts as well. */
const areAllDuplicates = (publishing: Publishing, input: MessageInput): boolean =>
  listRecipients(publishing.draft, publishing.account.id, input).every((one) =>
    findDuplicate(publishing, one),
  );

/** Returns the row of an older message with the same deduplication key, within the window of that message. */
function findDuplicate(
  { draft, moment, account }: Publishing,
  { deduplication }: MessageInput,
): Deduplication | null {
  const older = deduplication === null ? undefined : draft.get("deduplications", account.id, deduplication);
  return older && older.expiresAt > moment.now ? older : null;
}

function findLimitRefusal(account: Account, input: MessageInput, moment: Moment): Refused | null {
  const refusal =
    findBodyRefusal(account, input.body, moment) ??
    findHostRefusal(account, [input.url, ...listRunUrls(input.post)]);
  if (refusal) return isPostedByRun(input) ? { ...refusal, refused: "step-refused" } : refusal;
  return findSendingRefusal(account, input, moment.now);
}

/**
 * Reports whether the endpoint of a run posted an input. The code `step-refused` makes its client give up the
 * run; after another refusal, the client would retry again and again.
 */
const isPostedByRun = ({ post }: MessageInput): boolean =>
  post !== undefined && (post.kind !== "start" || post.invoker !== null);

/**
 * Reports whether an input continues a run, which a disabled account may do. A step of a run that has ended
 * is refused in any case.
 */
const continuesRun = (draft: Draft, account: AccountId, input: MessageInput): boolean =>
  isPostedByRun(input) ||
  (input.post?.kind === "start" &&
    input.post.origin === "again" &&
    isActiveRun(draft, account, input.post.runId));

const isActiveRun = (draft: Draft, account: AccountId, runId: string): boolean =>
  draft.get("activeRuns", account, runId) !== undefined;
