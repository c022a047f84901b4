import type { Decision, Draft, Key, Moment, Needs } from "../decision/command.ts";
import type { RemainingQuota, ErrorCode } from "../values/errors.ts";
import { Refusal } from "../values/errors.ts";
import { queueGate } from "../admission/gate.ts";
import { findLimiter } from "../admission/limiter.ts";
import { destinationNeeds, listLimiterKeysFor } from "../admission/needs.ts";
import type { DestinationNeeds } from "../admission/needs.ts";
import { accept } from "../sending/createMessage.ts";
import { listRecipients, damagedGroupRefusal } from "./urlGroup.ts";
import type { StepInput } from "../workflows/history.ts";
import { findOngoingRun, stepNeeds, postStep } from "../workflows/history.ts";
import { findBudgetRefusal } from "../accounts/budget.ts";
import type { Deduplication } from "../model/deduplication.ts";
import { deduplicationEnd } from "../model/deduplication.ts";
import { limits } from "../values/limits.ts";
import type {
  Account,
  AccountId,
  CallbackSettings,
  FlowControl,
  MessageInput,
  MessageId,
  Millis,
  RunPost,
  SendSettings,
} from "../model/message.ts";
import { mergeNeeds } from "../decision/needs.ts";
import type { DayLimit } from "../accounts/dailyLimit.ts";
import {
  toRemainingQuota,
  formatDayLimitError,
  readDayLimit,
  fitsDayLimit,
  saveDayLimit,
  listDayCountKeys,
} from "../accounts/dailyLimit.ts";
import type { QueueLimit } from "../sending/quotas.ts";
import { queueQuotaNeeds, findQuotaRefusal } from "../sending/quotas.ts";
import { requireAccount, formatRaiseHint, readLimits, mustBeActive } from "../accounts/plans.ts";
import type { StartInput } from "../workflows/start.ts";
import { startNeeds, listNamedRuns, startRun } from "../workflows/start.ts";
import type { LimitName } from "../model/accountTerms.ts";
import { findTopicRefusal } from "../sending/topics.ts";
import { countBytes } from "../accounts/usage.ts";
import type { Scope } from "../model/rights.ts";
import { findScopeRefusal } from "../model/rights.ts";
import { findContentRefusal } from "../workflows/contentScope.ts";
import { findStorageRefusal } from "../accounts/storageQuota.ts";

/**
 * `run`: the workflow run that was started or continued. `url`: where the message goes, if it is an older one or goes to a URL group, and
 * the caller may know.
 */
export type Published = { messageId: MessageId; deduplicated: boolean; url?: string; run?: { runId: string; createdAt: Millis } };
type Refused = { refused: ErrorCode; message: string };
/** What became of one letter of a publish: a message, an older message, or a reason why not; of one to a group, for each endpoint. */
export type PublishResult = (Published | PublishedToEach | Refused) & {
  /** What is left of the requests of the day, where they are limited. */
  remainingQuota?: RemainingQuota;
};
type PublishedToEach = { each: readonly Published[] };

/**
 * Takes in letters, each for itself: one that is refused does not stop the others. The answers are in their order. Where
 * one is refused that belongs to a workflow run, nothing is taken: throws `Refusal` for the first such.
 * A letter to a URL group goes to all of its endpoints, or to none. A letter whose deduplication key was seen within
 * the window makes nothing and is answered with the older message. Of letters beyond the requests of the day each is
 * refused. `scope`: of a token with rights of its own.
 */
export const publish: Decision<{ account: AccountId; inputs: readonly MessageInput[]; scope?: Scope } & QueueLimit, PublishResult[]> = {
  needs: ({ account, inputs }) => {
    const urlGroups: Key[] = [];
    const activeRuns: Key[] = [];
    for (const { group, post } of inputs) {
      if (group !== null) urlGroups.push([account, group]);
      if (post) activeRuns.push(...listNamedRuns(account, post));
    }
    const single = urlGroups.length === 0 ? inputs : inputs.filter(({ group }) => group === null);
    return { accounts: [[account]], limiters: listLimiterKeysFor(account, inputs), urlGroups, activeRuns, ...acceptNeeds(account, single) };
  },
  further: ({ account, inputs, maxQueues }, draft) => {
    const quotaNeeds = queueQuotaNeeds(draft, account, inputs, { maxQueues });
    if (inputs.every(isSingle)) return { dayCounts: listDayCountKeys(draft.get("accounts", account)), ...quotaNeeds };
    const groupInputs = inputs.filter(({ group }) => group !== null);
    const runInputs = inputs.filter(hasRunPost);
    const dayCounts = listDayCountKeys(draft.get("accounts", account));
    if (runInputs.length === inputs.length)
      return mergeNeeds([
        ...(dayCounts.length > 0 ? [{ dayCounts }] : []),
        quotaNeeds,
        ...runInputs.map((input) => runPostNeeds(draft, account, input)),
      ]);
    const needs = {
      dayCounts,
      ...quotaNeeds,
      ...acceptNeeds(
        account,
        groupInputs.flatMap((input) => listRecipients(draft, account, input)),
      ),
    };
    return runInputs.length === 0 ? needs : mergeNeeds([needs, ...runInputs.map((input) => runPostNeeds(draft, account, input))]);
  },
  decide: ({ account: id, inputs, scope, maxQueues }, draft, moment) => {
    const account = requireAccount(draft.get("accounts", id));
    // What has begun goes on: see `continuesRun`.
    if (account.state === "passive" && !inputs.every((input) => continuesRun(draft, id, input))) mustBeActive(account);
    const day = readDayLimit(draft, moment, account);
    const results = inputs.map((input, at) => {
      const result: PublishResult =
        (scope && findTokenRefusal(scope, draft, id, input)) ||
        findQueueRefusal(draft, moment, account, input, maxQueues) ||
        (day ? publishWithinDayLimit(draft, moment, account, input, day) : publishOne(draft, moment, account, input));
      if (hasRunPost(input) && "refused" in result)
        throw new Refusal(
          result.refused,
          inputs.length === 1 ? result.message : `message ${at + 1} of ${inputs.length}: ${result.message}`,
          { remainingQuota: result.remainingQuota },
        );
      if (!("refused" in result)) countBytes(draft, id, "bytesIn", input.body.byteLength);
      return scope ? hideOlderUrls(scope, listRecipients(draft, id, input), result) : result;
    });
    if (day) saveDayLimit(draft, id, day);
    return results;
  },
};

/** A result without the URLs of older messages, as far as the token may not read and has sent other URLs. */
function hideOlderUrls(scope: Scope, sent: readonly Pick<MessageInput, "url">[], result: PublishResult): PublishResult {
  if ("refused" in result || scope.verbs.includes("read")) return result;
  const hideUrl = <P extends Published>(one: P, at: number): P => {
    if (one.url === sent[at]?.url) return one;
    const { url: _url, ...others } = one;
    return others as P;
  };
  return "each" in result ? { ...result, each: result.each.map(hideUrl) } : hideUrl(result, 0);
}

/** Why there can be no queue for a letter. Null: there is one, or can be one more, or all that the letter is was taken in before. */
function findQueueRefusal(
  draft: Draft,
  { now }: Moment,
  account: Account,
  input: MessageInput,
  maxQueues: number | undefined,
): Refused | null {
  const { queue } = input;
  if (queue === null || findLimiter(draft, { account: account.id, gate: queueGate(queue) })) return null;
  if (listRecipients(draft, account.id, input).every((one) => findDuplicate(draft, now, account.id, one))) return null;
  return findQuotaRefusal(draft, account, { name: "queues", maxQueues });
}

/** Takes in a letter as far as the requests of the day go, and counts it. */
function publishWithinDayLimit(draft: Draft, moment: Moment, account: Account, input: MessageInput, day: DayLimit): PublishResult {
  const requests = countRequests(draft, moment, account.id, input);
  if (requests > 0 && !fitsDayLimit(day, requests))
    return {
      refused: "day-limit-exceeded",
      message: formatDayLimitError(account, day, requests),
      remainingQuota: toRemainingQuota(account, day),
    };
  const result = publishOne(draft, moment, account, input);
  if (!("refused" in result)) day.used += requests;
  return { ...result, remainingQuota: toRemainingQuota(account, day) };
}

/** How many requests a letter is: what was taken in before is none, nor is what a run goes on with. */
function countRequests(draft: Draft, { now }: Moment, account: AccountId, input: MessageInput): number {
  if (hasRunPost(input)) return isPostedByRun(input) || draft.get("activeRuns", account, input.post.runId) ? 0 : 1;
  const inputs = input.group === null ? [input] : listRecipients(draft, account, input);
  return inputs.filter((one) => !findDuplicate(draft, now, account, one)).length;
}

/** What the token may not do that a letter came with; of a letter to a group, to any of its endpoints. */
function findTokenRefusal(scope: Scope, draft: Draft, account: AccountId, input: MessageInput): Refused | null {
  const all = listRecipients(draft, account, input);
  // The URL group is unknown; the caller reports that.
  if (all.length === 0) return null;
  for (const one of all) {
    const refusal = findScopeRefusal(scope, one);
    if (refusal) return refusal;
  }
  return (input.post && findRunRefusal(scope, draft, account, input.post)) ?? findContentRefusal(scope, draft, account, input);
}

/** With a step goes the whole history of its run, so whoever may not publish to the endpoint of a run may post nothing for it. */
function findRunRefusal(scope: Scope, draft: Draft, account: AccountId, post: RunPost): Refused | null {
  for (const [, runId] of listNamedRuns(account, post)) {
    const ongoing = findOngoingRun(draft, account, runId);
    const target = { group: null, queue: null, callback: null, failureCallback: null };
    const refusal = ongoing && findScopeRefusal(scope, { ...target, url: ongoing.run.url }, `the run ${runId}`);
    if (refusal) return refusal;
  }
  return null;
}

function publishOne(draft: Draft, moment: Moment, account: Account, input: MessageInput): PublishResult {
  const refusal = findAccountRefusal(draft, moment, account, input) ?? findLimitRefusal(account, input, moment.now);
  if (refusal) return refusal;
  if (hasRunPost(input)) return isRunStart(input) ? startRun(draft, moment, account, input) : postStep(draft, moment, account, input);
  const isDuplicate = (): boolean =>
    listRecipients(draft, account.id, input).every((one) => findDuplicate(draft, moment.now, account.id, one));
  const topicRefusal = input.signed && !isDuplicate() ? findTopicRefusal(draft, moment.now, account.id, input) : null;
  if (topicRefusal) return topicRefusal;
  if (input.group === null) return acceptOnce(draft, moment, account, input);
  const all = listRecipients(draft, account.id, input);
  if (draft.get("urlGroups", account.id, input.group)?.damaged)
    return { refused: "invalid", message: damagedGroupRefusal(input.group).message };
  if (all.length === 0) return { refused: "not-found", message: `destination: there is no URL group ${input.group} with endpoints` };
  return {
    each: all.map((one) => {
      const published = acceptOnce(draft, moment, account, one);
      return published.deduplicated ? published : Object.assign(published, { url: one.url });
    }),
  };
}

/** Returns why an account may not publish a letter now. What belongs to a run that has begun is taken in, whatever it costs. */
function findAccountRefusal(draft: Draft, { now }: Moment, account: Account, input: MessageInput): Refused | null {
  if (account.spending === undefined && account.storedBytes === undefined) return null;
  const isContinuing = continuesRun(draft, account.id, input);
  return (isContinuing ? null : findBudgetRefusal(account, now)) ?? findStorageRefusal(account, { continuesRun: isContinuing });
}

const isRunStart = (input: StartInput | StepInput): input is StartInput => input.post.kind === "start";
const isSingle = ({ group, post }: MessageInput): boolean => group === null && post === undefined;
const hasRunPost = (input: MessageInput): input is StartInput | StepInput => input.post !== undefined;

const runPostNeeds = (draft: Draft, account: AccountId, input: StartInput | StepInput): Needs =>
  isRunStart(input) ? startNeeds(draft, account, input) : stepNeeds(draft, account, input);

function acceptNeeds(account: AccountId, inputs: readonly MessageInput[]): DestinationNeeds & { deduplications: Key[] } {
  const deduplications: Key[] = [];
  for (const { deduplication, signed } of inputs) {
    if (deduplication !== null) deduplications.push([account, deduplication]);
    if (signed) deduplications.push([account, signed.key]);
  }
  const { hostWaitlists, endpoints } = destinationNeeds(
    account,
    inputs.map(({ url }) => url),
  );
  return { hostWaitlists, endpoints, deduplications };
}

function acceptOnce(draft: Draft, moment: Moment, account: Account, input: MessageInput): Published {
  const key = input.deduplication;
  const older = findDuplicate(draft, moment.now, account.id, input);
  const url = older?.made.url;
  if (older) return { messageId: older.messageId, deduplicated: true, ...(url === undefined ? {} : { url }) };
  const { id: messageId } = accept(draft, moment, account, input);
  if (key !== null) {
    const row = { account: account.id, key, messageId };
    draft.put("deduplications", { ...row, expiresAt: deduplicationEnd(moment.now, input), made: { at: moment.now, url: input.url } });
  }
  return { messageId, deduplicated: false };
}

/** The message with the same deduplication key, within the window of that message. */
function findDuplicate(draft: Draft, now: Millis, account: AccountId, { deduplication }: MessageInput): Deduplication | null {
  const older = deduplication === null ? undefined : draft.get("deduplications", account, deduplication);
  return older && older.expiresAt > now ? older : null;
}

function findLimitRefusal(account: Account, input: MessageInput, now: Millis): Refused | null {
  const refusal = findBodyRefusal(account, input.body);
  if (refusal) return isPostedByRun(input) ? { ...refusal, refused: "step-refused" } : refusal;
  return findSendingRefusal(account, input, now);
}

/** The limit that a body breaks, if it is larger than the account may send. */
export function findBodyRefusal(account: Account, body: Uint8Array): Refused | null {
  const { messageBytes } = readLimits(account);
  if (body.byteLength <= messageBytes) return null;
  const message = `body: ${body.byteLength} bytes, the limit is ${messageBytes}${formatRaiseHint(account, "messageBytes")}`;
  return { refused: "too-large", message };
}

/** Posted by the endpoint of a run, whose client would try again and again. */
const isPostedByRun = ({ post }: MessageInput): boolean => post !== undefined && (post.kind !== "start" || post.invoker !== null);

/** Whether a letter goes on with a run that has begun, which a passive account may do. A step of one that has ended is refused anyway. */
const continuesRun = (draft: Draft, account: AccountId, input: MessageInput): boolean =>
  isPostedByRun(input) || (input.post?.kind === "start" && input.post.origin === "again" && isActiveRun(draft, account, input.post.runId));

const isActiveRun = (draft: Draft, account: AccountId, runId: string): boolean => draft.get("activeRuns", account, runId) !== undefined;

/** The limit that a letter's settings break, if any; those of its callbacks too. */
export function findSendingRefusal(
  account: Account,
  input: SendSettings & Pick<MessageInput, "delay" | "notBefore">,
  now: Millis,
): Refused | null {
  return (
    findDelayRefusal(account, input, now) ??
    findSettingsRefusal(account, input) ??
    findCallbackRefusal(account, input.callback, now) ??
    findCallbackRefusal(account, input.failureCallback, now)
  );
}

function findDelayRefusal(account: Account, { delay, notBefore }: Pick<MessageInput, "delay" | "notBefore">, now: Millis): Refused | null {
  const maxDelay = readLimits(account).delay;
  const raise = { account, name: "delay" } as const;
  if ((delay ?? 0) > maxDelay) return limitExceeded("delay", (delay ?? 0) / 1000, maxDelay / 1000, "seconds", raise);
  const fromNow = (notBefore ?? now) - now;
  return fromNow > maxDelay ? limitExceeded("not-before", Math.round(fromNow / 1000), maxDelay / 1000, "seconds from now", raise) : null;
}

function findCallbackRefusal(account: Account, callback: CallbackSettings | null, now: Millis): Refused | null {
  if (!callback) return null;
  return (
    findDelayRefusal(account, { delay: callback.delay ?? null, notBefore: null }, now) ??
    findSettingsRefusal(account, callback) ??
    findCallbackRefusal(account, callback.callback, now) ??
    findCallbackRefusal(account, callback.failureCallback, now)
  );
}

/** What is not given is the default, or the limit where that is lower: see `core/sending/createMessage.ts`. */
function findSettingsRefusal(account: Account, { retries, timeout, headers, flowControl }: SendSettings): Refused | null {
  const accountLimits = readLimits(account);
  if ((retries ?? 0) > accountLimits.retries)
    return limitExceeded("retries", retries ?? 0, accountLimits.retries, "", { account, name: "retries" });
  const headerBytes = headers.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
  if (headerBytes > limits.headerBytes) return limitExceeded("headers", headerBytes, limits.headerBytes, "bytes");
  if ((timeout ?? 0) > accountLimits.timeout)
    return limitExceeded("timeout", (timeout ?? 0) / 1000, accountLimits.timeout / 1000, "seconds", { account, name: "timeout" });
  return flowControl ? findFlowControlRefusal(flowControl) : null;
}

/** The limit that the limits of a queue or a key break, if any. */
export function findFlowControlRefusal({ parallelism, rate, period }: Partial<Omit<FlowControl, "key">>): Refused | null {
  if ((parallelism ?? 0) > limits.parallelism) return limitExceeded("parallelism", parallelism ?? 0, limits.parallelism, "");
  if ((rate ?? 0) > limits.rate) return limitExceeded("rate", rate ?? 0, limits.rate, "");
  // Not what an account may have more of: protocol 8 tells it from those above.
  if ((period ?? 0) > limits.period)
    return { ...limitExceeded("period", (period ?? 0) / 1000, limits.period / 1000, "seconds"), refused: "invalid" };
  return null;
}

/** The limit that the parallelism of a queue breaks, if it is more than the account may have. */
export function findParallelismRefusal(account: Account, parallelism: number): Refused | null {
  const maxParallelism = readLimits(account).parallelism;
  return parallelism > maxParallelism
    ? limitExceeded("parallelism", parallelism, maxParallelism, "", { account, name: "parallelism" })
    : null;
}

const limitExceeded = (
  name: string,
  value: number,
  limit: number,
  unit: string,
  raise?: { account: Account; name: LimitName },
): Refused => ({
  refused: "limit-exceeded",
  message: `${name}: ${value}${unit && ` ${unit}`} asked for, the limit is ${limit}${raise ? formatRaiseHint(raise.account, raise.name) : ""}`,
});
