import type { DueRow } from "../model/dueRow.ts";
import { toRowKey } from "../model/dueRow.ts";
import type { Decision, Draft, DueNeed, Moment } from "../decision/command.ts";
import { advance, hold, mightPass } from "../admission/admission.ts";
import { deferIfQueuePaused } from "../admission/pausedQueue.ts";
import { countEnd } from "../admission/counters.ts";
import { capacityGate } from "../admission/gate.ts";
import { withGrownSize } from "../admission/carried.ts";
import { endLease, serverEndedDueAt, toLeaseRef } from "../admission/lease.ts";
import { log } from "../admission/messageLog.ts";
import {
  countPassing,
  giveUp,
  startSending,
  serveHostWaitlist,
  serveLimiter,
} from "../admission/waitlist.ts";
import { hasRunEnded } from "../workflows/end.ts";
import { countSince, findProgress } from "../workflows/progress.ts";
import { maxLostAttempts } from "../values/limits.ts";
import type { AccountId, Millis } from "../values/basics.ts";
import { damagedMessage } from "../model/damagedRows.ts";
import type { StoredMessage, WithoutBody } from "../model/message.ts";
import type { MessageState } from "../model/messageState.ts";
import type { Schedule } from "../model/schedule.ts";
import type { Limiter, HostWaitlist } from "../model/limiter.ts";
import { isBeingSent, isUnfinished } from "../model/messageState.ts";
import { recordRequestEnd, noResponse } from "../sending/recordOutcome.ts";
import { unreportedError } from "../sending/endedAttempt.ts";
import type { Waiter } from "../model/run.ts";
import { fireSchedules } from "../sending/firing.ts";
import { failMessage } from "../deadLetters/failMessage.ts";
import { applyOutcome } from "../attempts/applyOutcome.ts";
import { nodeEndedDueAt } from "../cluster/takeover.ts";
import type { Turns } from "../node/turns.ts";
import { listBackloggedAccounts, dueTables, orderInRounds } from "../node/turns.ts";
import { endExpiredWaits } from "../workflows/wake.ts";

/**
 * The result of a claim. `more`: more rows may be due than the claim looked at. `now`: the time of the claim,
 * by the clock of the store. `turns`: the value to pass to the next claim, so that all accounts get their
 * turn. `backlogged`: accounts that may have more due messages.
 */
export type Claimed = { more: boolean; now: Millis; turns: Turns; backlogged: readonly AccountId[] };

/**
 * How much one claim looks at: messages, waitlists of hosts, limiters, schedules, and waiters. `heads` limits
 * the messages of all waitlists together. `only`: the claim looks at no other due rows. `except`: the claim
 * skips these due rows. `backlogged`: the accounts that had more due messages at the previous claim.
 */
export type ClaimLimits = ClaimWindow & {
  heads?: number;
  only?: readonly DueRow[];
  backlogged?: readonly AccountId[];
};
type ClaimWindow = Pick<DueNeed, "limit"> & Partial<DueNeed> & { except?: readonly DueRow[] };

const fillDueLimits = ({
  limit,
  hostWaitlists = limit,
  limiters = limit,
  schedules = limit,
  waiters = limit,
}: ClaimWindow): Required<Omit<DueNeed, "turns">> => ({
  limit,
  hostWaitlists,
  limiters,
  schedules,
  waiters,
});

/** Returns the rows to load. Excluded rows do not use up the limits. */
function toDueNeed(limits: ClaimWindow): DueNeed {
  const { limit, hostWaitlists, limiters, schedules, waiters } = fillDueLimits(limits);
  const excepted = limits.except?.length ?? 0;
  const counts = {
    limit: limit + excepted,
    hostWaitlists: hostWaitlists + excepted,
    limiters: limiters + excepted,
    schedules: schedules + excepted,
    waiters: waiters + excepted,
  };
  return limits.turns ? { ...counts, turns: limits.turns } : counts;
}

/**
 * Picks messages to send now and leases them to this node: the oldest, and if more are due, also messages of
 * other accounts in turn. A message that meets a closed gate is held in its waitlist, so that later claims do
 * not meet it again.
 *
 * Also serves waitlists of hosts that have not been served for a while. At most `hostWaitlists` of them are
 * served, and no more than the free capacity allows: a waitlist that is served without a delivery would lose
 * its turn. If `hostWaitlists` is 0, they stay due. Limiters that are open again let the first messages of
 * their waitlists pass, due schedules fire, and waits whose deadline has passed end.
 */
export const claim: Decision<ClaimLimits, Claimed> = {
  hint: (limits) => ({ due: toDueNeed(limits) }),
  decide: (limits, draft, moment) => {
    const {
      limit,
      hostWaitlists: maxHostWaitlists,
      limiters: maxLimiters,
      schedules: maxSchedules,
      waiters: maxWaiters,
    } = fillDueLimits(limits);
    const { due, hostWaitlists, limiters, schedules, waiters, turns: ends } = selectDue(draft, limits);
    // All waitlists together send at most as many messages as there can be capacity for.
    const maxHeads = limits.heads ?? maxHostWaitlists;
    for (const waitlist of hostWaitlists)
      serveHostWaitlist(draft, moment, { waitlist, limit: Math.ceil(maxHeads / hostWaitlists.length) });
    for (const limiter of limiters)
      serveLimiter(draft, moment, {
        limiter,
        limit: countPassing(limiter, Math.ceil(maxHeads / limiters.length)),
      });
    endExpiredWaits(draft, moment, waiters);
    const left = due.filter((state) => !claimOne(draft, moment, state));
    const allFired = fireSchedules(draft, moment, schedules);
    const counts = {
      messages: due.length,
      hostWaitlists: hostWaitlists.length,
      limiters: limiters.length,
      schedules: schedules.length,
      waiters: waiters.length,
    };
    const maximums = {
      messages: limit,
      hostWaitlists: maxHostWaitlists,
      limiters: maxLimiters,
      schedules: maxSchedules,
      waiters: maxWaiters,
    };
    const full = dueTables.filter(
      (table) =>
        (maximums[table] > 0 && counts[table] >= maximums[table]) || (table === "schedules" && !allFired),
    );
    const turns = Object.fromEntries(full.map((table) => [table, ends[table] ?? ""]));
    // A message in a waitlist waits for capacity, so one waitlist is a sign that its account has a backlog.
    const waitlistAccounts = [
      full.includes("hostWaitlists") ? hostWaitlists : [],
      full.includes("limiters") ? limiters : [],
    ]
      .flat()
      .map(({ account }) => account);
    const turn = {
      before: limits.backlogged ?? [],
      from: limits.turns?.messages,
      to: ends.messages ?? "",
    };
    const backlogged = [
      ...(full.includes("messages") ? listBackloggedAccounts(due, turn) : []),
      ...waitlistAccounts,
    ];
    return {
      more: left.length > 0 || full.length > 0,
      now: moment.now,
      turns,
      backlogged: [...new Set([...backlogged, ...left.map(readStateAccount)])],
    };
  },
};

const readStateAccount = ({ account }: MessageState): AccountId => account;

/** Returns the rows that a claim would look at, in the order in which they came due. */
export const listDue: Decision<ClaimWindow, { rows: DueRow[]; now: Millis }> = {
  decide: (limits, draft, { now }) => {
    const { due, hostWaitlists, limiters, schedules, waiters } = selectDue(draft, limits);
    const waitlistRows = [...hostWaitlists.map(toDueRow.hostWaitlists), ...limiters.map(toDueRow.limiters)];
    return {
      rows: [
        ...due.map(toDueRow.messages),
        ...waitlistRows,
        ...schedules.map(toDueRow.schedules),
        ...waiters.map(toDueRow.waiters),
      ],
      now,
    };
  },
};

const toDueRow = {
  messages: ({ account, id }: MessageState): DueRow => ({ table: "messages", account, id }),
  hostWaitlists: ({ account, host }: HostWaitlist): DueRow => ({ table: "hostWaitlists", account, id: host }),
  limiters: ({ account, id }: Limiter): DueRow => ({ table: "limiters", account, id }),
  schedules: ({ account, id }: Schedule): DueRow => ({ table: "schedules", account, id }),
  waiters: ({ account, id }: Waiter): DueRow => ({ table: "waiters", account, id }),
};

/** Returns the rows that this claim looks at, in rounds through the accounts. */
function selectDue(draft: Draft, limits: ClaimLimits) {
  const { only, except = [] } = limits;
  const selectedKeys = new Set((only ?? except).map(toRowKey));
  const isSelected = (row: DueRow): boolean => selectedKeys.has(toRowKey(row)) === (only !== undefined);
  const select = <Row extends { account: AccountId }>(
    all: readonly Row[],
    toRow: (one: Row) => DueRow,
  ): readonly Row[] =>
    orderInRounds(!only && except.length === 0 ? all : all.filter((one) => isSelected(toRow(one))));
  const found = draft.due(toDueNeed(limits));
  return {
    turns: found.turns,
    due: select(found.messages, toDueRow.messages),
    // No more waitlists than the free capacity allows: a waitlist that is served without a delivery would
    // lose its turn.
    hostWaitlists: select(found.hostWaitlists, toDueRow.hostWaitlists).slice(
      0,
      limits.hostWaitlists ?? limits.limit,
    ),
    limiters: select(found.limiters, toDueRow.limiters),
    schedules: select(found.schedules, toDueRow.schedules),
    waiters: select(found.waiters, toDueRow.waiters),
  };
}

/**
 * Reports whether a message will not be sent again: its lease expired for the last time, or its run has
 * ended. If its lease expired for the last time, the message fails. If its run has ended, the message is no
 * longer needed.
 */
const isLostForGood = (draft: Draft, message: MessageState): boolean =>
  isBeingSent(message) && (countLost(draft, message) >= maxLostAttempts || hasRunEnded(draft, message));

/** Returns the lost attempts of a message, since the last step that ran on in its calls. */
function countLost(draft: Draft, state: MessageState): number {
  if (state.run === null || state.lostAttempts < maxLostAttempts) return state.lostAttempts;
  const message = draft.inspectWithoutBody("storedMessages", state.account, state.id);
  if (!message || message.damaged) return state.lostAttempts;
  return countSince(state, findProgress(draft, message)).lost;
}

/**
 * Claims one message. Returns false if the message is left for the next claim, because its stored message is
 * not loaded.
 */
function claimOne(draft: Draft, moment: Moment, due: MessageState): boolean {
  // The message no longer exists if its run has ended in this same claim.
  const found = draft.get("messages", due.account, due.id);
  if (!found) return true;
  if (found.state === "acknowledging") {
    endUnreported(draft, moment, found);
    return true;
  }
  const current = found.leasedBy === null ? found : withGrownSize(draft, found);
  const isLost = isLostForGood(draft, current);
  if (isLost || (isUnfinished(current) && mightPass(draft, current))) {
    if (draft.capacity.loadBody(current) === "loaded") {
      if (isContentDamaged(draft, current)) return failDamaged(draft, moment, current);
    } else if (isLost) return false;
  }
  const waiting = current.leasedBy !== null ? retryLostLease(draft, moment, current) : current;
  if (!waiting) return true;
  if (deferIfQueuePaused(draft, moment, waiting)) return true;
  const { state, stoppedAt } = advance(draft, moment, waiting);
  const body = stoppedAt === null ? draft.capacity.loadBody(state) : null;
  const isLoaded = body === "loaded";
  const gate = stoppedAt ?? (body === "overShare" ? capacityGate(state.host) : null);
  if (gate !== null) hold(draft, moment, { state, gate });
  else if (isLoaded) startSending(draft, moment, state);
  else if (state !== current) draft.put("messages", state);
  return gate !== null || isLoaded;
}

/** Fails a message whose stored content is damaged: nothing that may have been altered is ever sent. */
function failDamaged(draft: Draft, moment: Moment, state: MessageState): true {
  const account = draft.get("accounts", state.account);
  draft.fault(
    `message ${state.id} of account ${state.account} is damaged or missing in the store; it has failed`,
  );
  if (account) failMessage(draft, moment, { account, state, ...toDamagedFailure(draft, state) });
  else giveUp(draft, moment, state);
  return true;
}

/** The outcome of a message whose content is damaged. */
const damagedOutcome = {
  ...noResponse,
  error: "the stored message is damaged, so it is not sent; publish it again, or restore a backup",
};

/** Reports whether the stored content of an unfinished message is damaged or missing. */
function isContentDamaged(draft: Draft, state: MessageState): boolean {
  if (!isUnfinished(state)) return false;
  const message = draft.inspect("storedMessages", state.account, state.id);
  return !message || message.damaged === true;
}

/**
 * Returns a damaged message and its outcome, so that it can be failed. Its callbacks are not sent, because
 * they would carry unknown content. If its run is loaded, the run fails with the message.
 */
function toDamagedFailure(
  draft: Draft,
  { account, id, run: key }: MessageState,
): { message: WithoutBody<StoredMessage>; outcome: typeof damagedOutcome } {
  const stored = draft.inspect("storedMessages", account, id) ?? damagedMessage({ account, id });
  const run = key === null ? undefined : draft.get("runs", account, key);
  const { run: part, ...rest } = stored;
  const runPart = run && {
    run: run.id,
    runId: run.runId,
    createdAt: run.createdAt,
    kind: "step" as const,
    stepKey: "",
    position: 0,
    size: 0,
  };
  const withoutCallbacks = { ...rest, ...(run && { url: run.url }), callback: null, failureCallback: null };
  const reportedPart = runPart ?? (part?.kind === "failure" ? part : undefined);
  return {
    message: reportedPart ? { ...withoutCallbacks, run: reportedPart } : withoutCallbacks,
    outcome: damagedOutcome,
  };
}

/** Returns the error of an attempt that never reported its outcome. */
function formatMissingReport({ leasedBy, dueAt }: MessageState): string {
  const node = leasedBy ?? "?";
  if (dueAt === serverEndedDueAt)
    return `no report: the server was restarted while node ${node} was sending it`;
  if (dueAt === nodeEndedDueAt) return `no report: node ${node} ended while it was sending it`;
  return `no report: the lease of node ${node} ran out`;
}

/**
 * Counts an expired lease as an attempt without a report: its node ended or was cut off. The message is due
 * again at once, and the attempt does not use up a retry. The number of such attempts is limited, because the
 * message may be what makes the nodes fail. Returns null if the message has ended.
 */
function retryLostLease(draft: Draft, moment: Moment, state: MessageState): MessageState | null {
  const outcome = { ...noResponse, error: formatMissingReport(state) };
  draft.record("lease expired");
  if (!isUnfinished(state)) {
    recordRequestEnd(draft, moment, { state, outcome });
    return null;
  }
  const retried: MessageState = {
    ...endLease(draft, state),
    attempts: state.attempts + 1,
    lostAttempts: state.lostAttempts + 1,
    dueAt: moment.now,
  };
  if (!isLostForGood(draft, state)) {
    countEnd(draft, moment, state);
    log(draft, moment, {
      message: state,
      row: { states: ["ERROR", "RETRY"], error: outcome.error, nextDueAt: moment.now },
    });
    return retried;
  }
  const account = draft.get("accounts", state.account);
  const message = draft.inspectWithoutBody("storedMessages", state.account, state.id);
  if (account && message) failMessage(draft, moment, { account, message, state, outcome });
  else giveUp(draft, moment, state);
  return null;
}

/**
 * Ends an attempt that its receiver has held and not reported in time. The attempt has failed, so it is
 * retried like one without a response.
 */
function endUnreported(draft: Draft, moment: Moment, state: MessageState): void {
  const account = draft.get("accounts", state.account);
  if (!account) return giveUp(draft, moment, state);
  const sent = { ...toLeaseRef(state), host: state.host, took: 0 };
  const outcome = { ...noResponse, ...sent, error: unreportedError };
  draft.record("acknowledged attempt expired");
  applyOutcome(draft, moment, { account, state, outcome });
}

/**
 * Makes the leases of the previous process due now. Use it only after a restart, when no other node can be
 * alive.
 */
export const reclaim: Decision<{ node: string; limit: number }, { reclaimed: number }> = {
  decide: ({ node, limit }, draft) => {
    const states = draft.leasedByOthers({ node, limit });
    // The messages stay active and leased by the old node, so that the claim counts the attempt without a
    // report and names that node in the log.
    for (const state of states) draft.put("messages", { ...state, dueAt: serverEndedDueAt });
    return { reclaimed: states.length };
  },
};
