import type { Decision, Draft, Key, Moment, Needs } from "../decision/command.ts";
import type { Allowance, ErrorCode } from "../values/errors.ts";
import { Refusal } from "../values/errors.ts";
import { queueGate } from "../admission/gate.ts";
import { findLimiter } from "../admission/limiter.ts";
import { destinationNeeds, listLimiterKeysFor } from "../admission/needs.ts";
import type { DestinationNeeds } from "../admission/needs.ts";
import { accept } from "../sending/createMessage.ts";
import { addressed, damagedGroupRefused } from "./urlGroup.ts";
import type { StepLetter } from "../workflows/history.ts";
import { goingRun, needsOfStep, postStep } from "../workflows/history.ts";
import { budgetBrokenBy } from "../accounts/budget.ts";
import type { Deduplication } from "../model/deduplication.ts";
import { windowEnd } from "../model/deduplication.ts";
import { limits } from "../values/limits.ts";
import type {
  Account,
  AccountId,
  CallbackSettings,
  FlowControl,
  Letter,
  MessageId,
  Millis,
  RunPost,
  SendSettings,
} from "../model/message.ts";
import { together } from "../decision/needs.ts";
import type { DayLimit } from "../accounts/dailyLimit.ts";
import { allowanceOf, beyondDayLimit, dayLimitOf, fits, keepDayLimit, needsOfDayLimit } from "../accounts/dailyLimit.ts";
import type { MostQueues } from "../sending/quotas.ts";
import { needsOfQueues, placeRefusal } from "../sending/quotas.ts";
import { existing, howToRaise, limitsOf, mustBeActive } from "../accounts/plans.ts";
import type { StartLetter } from "../workflows/start.ts";
import { needsOfStart, runsNamedBy, startRun } from "../workflows/start.ts";
import type { LimitName } from "../model/accountTerms.ts";
import { topicBrokenBy } from "../sending/topics.ts";
import { countBytes } from "../accounts/usage.ts";
import type { Scope } from "../model/rights.ts";
import { scopeBrokenBy } from "../model/rights.ts";
import { sentAwayBy } from "../workflows/sentAway.ts";
import { storageQuotaBrokenBy } from "../accounts/storageQuota.ts";

/**
 * `run`: the workflow run that was started or continued. `url`: where the message goes, if it is an older one or goes to a URL group, and
 * the caller may know.
 */
export type Published = { messageId: MessageId; deduplicated: boolean; url?: string; run?: { runId: string; createdAt: Millis } };
type Refused = { refused: ErrorCode; message: string };
/** What became of one letter of a publish: a message, an older message, or a reason why not; of one to a group, for each endpoint. */
export type PublishResult = (Published | PublishedToEach | Refused) & {
  /** What is left of the requests of the day, where they are limited. */
  allowance?: Allowance;
};
type PublishedToEach = { each: readonly Published[] };

/**
 * Takes in letters, each for itself: one that is refused does not stop the others. The answers are in their order. Where
 * one is refused that belongs to a workflow run, nothing is taken: throws `Refusal` for the first such.
 * A letter to a URL group goes to all of its endpoints, or to none. A letter whose deduplication key was seen within
 * the window makes nothing and is answered with the older message. Of letters beyond the requests of the day each is
 * refused. `scope`: of a token with rights of its own.
 */
export const publish: Decision<{ account: AccountId; letters: readonly Letter[]; scope?: Scope } & MostQueues, PublishResult[]> = {
  needs: ({ account, letters }) => {
    const groups: Key[] = [];
    const activeRuns: Key[] = [];
    for (const { group, post } of letters) {
      if (group !== null) groups.push([account, group]);
      if (post) activeRuns.push(...runsNamedBy(account, post));
    }
    const single = groups.length === 0 ? letters : letters.filter(({ group }) => group === null);
    return { accounts: [[account]], flows: listLimiterKeysFor(account, letters), groups, activeRuns, ...needsOfTaking(account, single) };
  },
  further: ({ account, letters, mostQueues }, draft) => {
    const counts = needsOfQueues(draft, account, letters, { mostQueues });
    if (letters.every(isPlain)) return { dayCounts: needsOfDayLimit(draft.get("accounts", account)), ...counts };
    const ofGroups = letters.filter(({ group }) => group !== null);
    const ofRuns = letters.filter(isOfRun);
    const dayCounts = needsOfDayLimit(draft.get("accounts", account));
    if (ofRuns.length === letters.length)
      return together([
        ...(dayCounts.length > 0 ? [{ dayCounts }] : []),
        counts,
        ...ofRuns.map((letter) => needsOfPost(draft, account, letter)),
      ]);
    const needs = {
      ...{ dayCounts, ...counts },
      ...needsOfTaking(
        account,
        ofGroups.flatMap((letter) => addressed(draft, account, letter)),
      ),
    };
    return ofRuns.length === 0 ? needs : together([needs, ...ofRuns.map((letter) => needsOfPost(draft, account, letter))]);
  },
  decide: ({ account: id, letters, scope, mostQueues }, draft, moment) => {
    const account = existing(draft.get("accounts", id));
    // What has begun goes on: see `goesOn`.
    if (account.state === "passive" && !letters.every((letter) => goesOn(draft, id, letter))) mustBeActive(account);
    const day = dayLimitOf(draft, moment, account);
    const results = letters.map((letter, at) => {
      const result: PublishResult =
        (scope && forbiddenBy(scope, draft, id, letter)) ||
        queueRefusal(draft, moment, account, letter, mostQueues) ||
        (day ? takeOfDay(draft, moment, account, letter, day) : takeOne(draft, moment, account, letter));
      if (isOfRun(letter) && "refused" in result)
        throw new Refusal(
          result.refused,
          letters.length === 1 ? result.message : `message ${at + 1} of ${letters.length}: ${result.message}`,
          { allowance: result.allowance },
        );
      if (!("refused" in result)) countBytes(draft, id, "bytesIn", letter.body.byteLength);
      return scope ? heardBy(scope, addressed(draft, id, letter), result) : result;
    });
    if (day) keepDayLimit(draft, id, day);
    return results;
  },
};

/** A result without the URLs of older messages, as far as the token may not read and has sent other URLs. */
function heardBy(scope: Scope, sent: readonly Pick<Letter, "url">[], result: PublishResult): PublishResult {
  if ("refused" in result || scope.verbs.includes("read")) return result;
  const heard = <P extends Published>(one: P, at: number): P => {
    if (one.url === sent[at]?.url) return one;
    const { url: _url, ...others } = one;
    return others as P;
  };
  return "each" in result ? { ...result, each: result.each.map(heard) } : heard(result, 0);
}

/** Why there can be no queue for a letter. Null: there is one, or can be one more, or all that the letter is was taken in before. */
function queueRefusal(draft: Draft, { now }: Moment, account: Account, letter: Letter, mostQueues: number | undefined): Refused | null {
  const { queue } = letter;
  if (queue === null || findLimiter(draft, { account: account.id, gate: queueGate(queue) })) return null;
  if (addressed(draft, account.id, letter).every((one) => olderOf(draft, now, account.id, one))) return null;
  return placeRefusal(draft, account, { name: "queues", mostQueues });
}

/** Takes in a letter as far as the requests of the day go, and counts it. */
function takeOfDay(draft: Draft, moment: Moment, account: Account, letter: Letter, day: DayLimit): PublishResult {
  const requests = requestsIn(draft, moment, account.id, letter);
  if (requests > 0 && !fits(day, requests))
    return { refused: "day-limit-exceeded", message: beyondDayLimit(account, day, requests), allowance: allowanceOf(account, day) };
  const result = takeOne(draft, moment, account, letter);
  if (!("refused" in result)) day.used += requests;
  return { ...result, allowance: allowanceOf(account, day) };
}

/** How many requests a letter is: what was taken in before is none, nor is what a run goes on with. */
function requestsIn(draft: Draft, { now }: Moment, account: AccountId, letter: Letter): number {
  if (isOfRun(letter)) return isOfGoingRun(letter) || draft.get("activeRuns", account, letter.post.runId) ? 0 : 1;
  const letters = letter.group === null ? [letter] : addressed(draft, account, letter);
  return letters.filter((one) => !olderOf(draft, now, account, one)).length;
}

/** What the token may not do that a letter came with; of a letter to a group, to any of its endpoints. */
function forbiddenBy(scope: Scope, draft: Draft, account: AccountId, letter: Letter): Refused | null {
  const all = addressed(draft, account, letter);
  // The URL group is unknown; the caller reports that.
  if (all.length === 0) return null;
  for (const one of all) {
    const broken = scopeBrokenBy(scope, one);
    if (broken) return broken;
  }
  return (letter.post && runForbiddenBy(scope, draft, account, letter.post)) ?? sentAwayBy(scope, draft, account, letter);
}

/** With a step goes the whole history of its run, so whoever may not publish to the endpoint of a run may post nothing for it. */
function runForbiddenBy(scope: Scope, draft: Draft, account: AccountId, post: RunPost): Refused | null {
  for (const [, runId] of runsNamedBy(account, post)) {
    const going = goingRun(draft, account, runId);
    const aim = { group: null, queue: null, callback: null, failureCallback: null };
    const broken = going && scopeBrokenBy(scope, { ...aim, url: going.run.url }, `the run ${runId}`);
    if (broken) return broken;
  }
  return null;
}

function takeOne(draft: Draft, moment: Moment, account: Account, letter: Letter): PublishResult {
  const refusal = accountRefusal(draft, moment, account, letter) ?? limitBrokenBy(account, letter, moment.now);
  if (refusal) return refusal;
  if (isOfRun(letter)) return isStart(letter) ? startRun(draft, moment, account, letter) : postStep(draft, moment, account, letter);
  const isKnown = (): boolean => addressed(draft, account.id, letter).every((one) => olderOf(draft, moment.now, account.id, one));
  const replay = letter.signed && !isKnown() ? topicBrokenBy(draft, moment.now, account.id, letter) : null;
  if (replay) return replay;
  if (letter.group === null) return take(draft, moment, account, letter);
  const all = addressed(draft, account.id, letter);
  if (draft.get("groups", account.id, letter.group)?.damaged)
    return { refused: "invalid", message: damagedGroupRefused(letter.group).message };
  if (all.length === 0) return { refused: "not-found", message: `destination: there is no URL group ${letter.group} with endpoints` };
  return {
    each: all.map((one) => {
      const taken = take(draft, moment, account, one);
      return taken.deduplicated ? taken : Object.assign(taken, { url: one.url });
    }),
  };
}

/** Returns why an account may not publish a letter now. What belongs to a run that has begun is taken in, whatever it costs. */
function accountRefusal(draft: Draft, { now }: Moment, account: Account, letter: Letter): Refused | null {
  if (account.spending === undefined && account.storedBytes === undefined) return null;
  const isBegun = goesOn(draft, account.id, letter);
  return (isBegun ? null : budgetBrokenBy(account, now)) ?? storageQuotaBrokenBy(account, { goesOn: isBegun });
}

const isStart = (letter: StartLetter | StepLetter): letter is StartLetter => letter.post.kind === "start";
const isPlain = ({ group, post }: Letter): boolean => group === null && post === undefined;
const isOfRun = (letter: Letter): letter is StartLetter | StepLetter => letter.post !== undefined;

const needsOfPost = (draft: Draft, account: AccountId, letter: StartLetter | StepLetter): Needs =>
  isStart(letter) ? needsOfStart(draft, account, letter) : needsOfStep(draft, account, letter);

function needsOfTaking(account: AccountId, letters: readonly Letter[]): DestinationNeeds & { deduplications: Key[] } {
  const deduplications: Key[] = [];
  for (const { deduplication, signed } of letters) {
    if (deduplication !== null) deduplications.push([account, deduplication]);
    if (signed) deduplications.push([account, signed.key]);
  }
  const { lines, endpoints } = destinationNeeds(
    account,
    letters.map(({ url }) => url),
  );
  return { lines, endpoints, deduplications };
}

function take(draft: Draft, moment: Moment, account: Account, letter: Letter): Published {
  const key = letter.deduplication;
  const older = olderOf(draft, moment.now, account.id, letter);
  const url = older?.made.url;
  if (older) return { messageId: older.messageId, deduplicated: true, ...(url === undefined ? {} : { url }) };
  const { id: messageId } = accept(draft, moment, account, letter);
  if (key !== null) {
    const of = { account: account.id, key, messageId };
    draft.put("deduplications", { ...of, expiresAt: windowEnd(moment.now, letter), made: { at: moment.now, url: letter.url } });
  }
  return { messageId, deduplicated: false };
}

/** The message with the same deduplication key, within the window of that message. */
function olderOf(draft: Draft, now: Millis, account: AccountId, { deduplication }: Letter): Deduplication | null {
  const older = deduplication === null ? undefined : draft.get("deduplications", account, deduplication);
  return older && older.expiresAt > now ? older : null;
}

function limitBrokenBy(account: Account, letter: Letter, now: Millis): Refused | null {
  const broken = bytesBrokenBy(account, letter.body);
  if (broken) return isOfGoingRun(letter) ? { ...broken, refused: "step-refused" } : broken;
  return sendingLimitBrokenBy(account, letter, now);
}

/** The limit that a body breaks, if it is larger than the account may send. */
export function bytesBrokenBy(account: Account, body: Uint8Array): Refused | null {
  const { messageBytes } = limitsOf(account);
  if (body.byteLength <= messageBytes) return null;
  const message = `body: ${body.byteLength} bytes, the limit is ${messageBytes}${howToRaise(account, "messageBytes")}`;
  return { refused: "too-large", message };
}

/** Posted by the endpoint of a run, whose client would try again and again. */
const isOfGoingRun = ({ post }: Letter): boolean => post !== undefined && (post.kind !== "start" || post.invoker !== null);

/** Whether a letter goes on with a run that has begun, which a passive account may do. A step of one that has ended is refused anyway. */
const goesOn = (draft: Draft, account: AccountId, letter: Letter): boolean =>
  isOfGoingRun(letter) || (letter.post?.kind === "start" && letter.post.origin === "again" && isGoing(draft, account, letter.post.runId));

const isGoing = (draft: Draft, account: AccountId, runId: string): boolean => draft.get("activeRuns", account, runId) !== undefined;

/** The limit that a letter's settings break, if any; those of its callbacks too. */
export function sendingLimitBrokenBy(
  account: Account,
  letter: SendSettings & Pick<Letter, "delay" | "notBefore">,
  now: Millis,
): Refused | null {
  return (
    delayBrokenBy(account, letter, now) ??
    settingsBrokenBy(account, letter) ??
    callbackBrokenBy(account, letter.callback, now) ??
    callbackBrokenBy(account, letter.failureCallback, now)
  );
}

function delayBrokenBy(account: Account, { delay, notBefore }: Pick<Letter, "delay" | "notBefore">, now: Millis): Refused | null {
  const most = limitsOf(account).delay;
  const raise = { account, name: "delay" } as const;
  if ((delay ?? 0) > most) return over("delay", (delay ?? 0) / 1000, most / 1000, "seconds", raise);
  const ahead = (notBefore ?? now) - now;
  return ahead > most ? over("not-before", Math.round(ahead / 1000), most / 1000, "seconds from now", raise) : null;
}

function callbackBrokenBy(account: Account, callback: CallbackSettings | null, now: Millis): Refused | null {
  if (!callback) return null;
  return (
    delayBrokenBy(account, { delay: callback.delay ?? null, notBefore: null }, now) ??
    settingsBrokenBy(account, callback) ??
    callbackBrokenBy(account, callback.callback, now) ??
    callbackBrokenBy(account, callback.failureCallback, now)
  );
}

/** What is not given is the default, or the limit where that is lower: see `core/sending/createMessage.ts`. */
function settingsBrokenBy(account: Account, { retries, timeout, headers, flowControl }: SendSettings): Refused | null {
  const most = limitsOf(account);
  if ((retries ?? 0) > most.retries) return over("retries", retries ?? 0, most.retries, "", { account, name: "retries" });
  const headerBytes = headers.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
  if (headerBytes > limits.headerBytes) return over("headers", headerBytes, limits.headerBytes, "bytes");
  if ((timeout ?? 0) > most.timeout)
    return over("timeout", (timeout ?? 0) / 1000, most.timeout / 1000, "seconds", { account, name: "timeout" });
  return flowControl ? flowLimitBrokenBy(flowControl) : null;
}

/** The limit that the limits of a queue or a key break, if any. */
export function flowLimitBrokenBy({ parallelism, rate, period }: Partial<Omit<FlowControl, "key">>): Refused | null {
  if ((parallelism ?? 0) > limits.parallelism) return over("parallelism", parallelism ?? 0, limits.parallelism, "");
  if ((rate ?? 0) > limits.rate) return over("rate", rate ?? 0, limits.rate, "");
  // Not what an account may have more of: protocol 8 tells it from those above.
  if ((period ?? 0) > limits.period)
    return { ...over("period", (period ?? 0) / 1000, limits.period / 1000, "seconds"), refused: "invalid" };
  return null;
}

/** The limit that the parallelism of a queue breaks, if it is more than the account may have. */
export function parallelismBrokenBy(account: Account, parallelism: number): Refused | null {
  const most = limitsOf(account).parallelism;
  return parallelism > most ? over("parallelism", parallelism, most, "", { account, name: "parallelism" }) : null;
}

const over = (name: string, value: number, limit: number, unit: string, raise?: { account: Account; name: LimitName }): Refused => ({
  refused: "limit-exceeded",
  message: `${name}: ${value}${unit && ` ${unit}`} asked for, the limit is ${limit}${raise ? howToRaise(raise.account, raise.name) : ""}`,
});
