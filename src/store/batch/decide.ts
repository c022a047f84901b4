import { listAccountLimiterKeys } from "../../core/admission/accountLimits.ts";
import { waitlistHeadNeeds } from "../../core/admission/waitlist.ts";
import type { Decision, DueNeed, Key, LineHead, Moment, Needs } from "../../core/decision/command.ts";
import { commands } from "../../core/commands/index.ts";
import type { Commands } from "../../core/commands/index.ts";
import { Later, Refusal } from "../../core/values/errors.ts";
import { laneOf } from "../../core/admission/capacity.ts";
import type { Hands } from "../../core/admission/capacity.ts";
import type { AccountId, Millis } from "../../core/model/message.ts";
import { WorkingSet } from "./workingSet.ts";
import type { Loader } from "./loader.ts";
import { RecentSightings } from "./recentTimeIndex.ts";
import type { BatchResult, Call, Reply, Source } from "../store.ts";

/** A decision needs no more rounds than this to have seen everything: what it names, what that leads to, and so on. */
const maxRounds = 12;

/** A call on its way. `reply`: it has failed before it came to its decision. */
type Asking = Call & { decision: Decision<unknown, unknown>; reply: Reply | null };

/**
 * `begun`: the time of the transaction, where nodes must agree on it, once it has begun; null: it is the source's. Most of what is
 * needed first is asked for together with the beginning.
 */
type Deciding = {
  loader: Loader;
  hands: Hands;
  source: Source;
  begun: Promise<Millis | null>;
  decisions?: Commands;
  recentSightings?: RecentSightings;
};

/**
 * Runs calls one after another over rows that are loaded together, round by round: first what they name themselves,
 * then what that leads to. A call that is refused, or fails, leaves no trace. The caller writes the changes of the set.
 */
export async function decideBatch(
  calls: readonly Call[],
  { loader, hands, source, begun, decisions = commands, recentSightings = new RecentSightings() }: Deciding,
): Promise<{ set: WorkingSet; replies: Reply[]; now: Millis }> {
  // The table of commands is typed by name; a call on its way is plain data again.
  const asking = calls.map((call): Asking => ({ ...call, decision: decisions[call.name], reply: null }));
  const set = new WorkingSet(hands, { isAlone: calls.length === 1, recentSightings });
  const seen: Seen = { accounts: new Set(), endpoints: [] };
  const first = needsOf(asking, ({ decision, input }) => decision.needs(input));
  // What is due depends on the time.
  const loading = first.due ? null : set.load(loader, first, 0);
  // All is answered when this ends, also where the beginning has failed: what was asked behind the end would be part of something else.
  await Promise.allSettled([begun, loading]);
  const now = (await begun) ?? source.now();
  await (loading ?? set.load(loader, first, now));
  note(seen, first);
  const curious = asking.filter(({ decision }) => decision.further);
  for (let round = 1; curious.length > 0; round++) {
    const asked = withHeads(
      set,
      needsOf(curious, ({ decision, input }) => decision.further?.(input, set) ?? {}),
    );
    note(seen, asked);
    const loaded = await set.load(loader, withAllowances(set, asked, seen), now);
    if (!loaded) break;
    if (round === maxRounds) throw new Error(`a decision still had needs after ${maxRounds} rounds`);
  }
  const moment: Moment = { now, node: source.node, newId: (kind) => source.newId(kind, now), random: () => source.random() };
  return { set, replies: asking.map((one) => one.reply ?? decideOne(one, set, moment)), now };
}

/** What all of them need. One that fails to say so has its reply, and is asked no more. */
function needsOf(all: readonly Asking[], ask: (one: Asking) => Needs): Needs {
  const found: Needs[] = [];
  for (const one of all) {
    if (one.reply) continue;
    try {
      found.push(ask(one));
    } catch (error) {
      one.reply = failureOf(error);
    }
  }
  return merge(found);
}

function decideOne({ decision, input }: Asking, set: WorkingSet, moment: Moment): Reply {
  try {
    return { answer: set.attempt(() => decision.decide(input, set, moment)) };
  } catch (error) {
    return failureOf(error);
  }
}

function failureOf(error: unknown): Reply {
  if (error instanceof Later) return { later: true };
  if (error instanceof Refusal) {
    const { code, message, allowance } = error;
    return { refused: { code, message, ...(allowance && { allowance }) } };
  }
  return { failed: error instanceof Error ? (error.stack ?? error.message) : String(error) };
}

/** Accounts and endpoints that were asked for. */
type Seen = { accounts: Set<AccountId>; endpoints: (readonly Key[])[] };

function note({ accounts, endpoints }: Seen, needs: Needs): void {
  for (const [account] of needs.accounts ?? none) accounts.add(account);
  if (needs.endpoints?.length) endpoints.push(needs.endpoints);
}

function withAllowances(set: WorkingSet, asked: Needs, { accounts, endpoints }: Seen): Needs {
  const flows = listAccountLimiterKeys(set, accounts, endpoints);
  return flows.length === 0 ? asked : merge([asked, { flows }]);
}

/** Found out for all calls together: a hundred outcomes of one key name the same hundred that stand in its line. */
const withHeads = (set: WorkingSet, asked: Needs): Needs =>
  asked.heads?.length ? merge([asked, waitlistHeadNeeds(set, asked.heads)]) : asked;

/** The needs of many as the needs of one. Where each asks for the first so many of something, they ask for the sum. */
function merge(all: readonly Needs[]): Needs {
  if (all.length === 1 && all[0]) return all[0];
  const lists: Record<string, unknown[]> = {};
  const merged: { -readonly [K in keyof Needs]: Needs[K] } = {};
  for (const needs of all) {
    joinLists(lists, needs);
    if (needs.due) merged.due = merged.due ? sumOf(merged.due, needs.due) : needs.due;
    if (needs.leasedByOthers) merged.leasedByOthers = needs.leasedByOthers;
  }
  Object.assign(merged, lists);
  const outlines = all.flatMap((needs) => needs.outlines ?? none);
  if (outlines.length > 0) {
    merged.outlines = {
      envelopes: outlines.flatMap(({ envelopes }) => envelopes ?? none),
      deadLetters: outlines.flatMap(({ deadLetters }) => deadLetters ?? none),
      steps: outlines.flatMap(({ steps }) => steps ?? none),
    };
  }
  // Every outcome of one host names the same line.
  if (merged.toSendFrom) merged.toSendFrom = [...new Map(merged.toSendFrom.map((one) => [laneOf(one.account, one.line), one])).values()];
  if (merged.heads) merged.heads = mergeHeads(merged.heads);
  return merged;
}

/** Each names little of most things, and this stands on the way of every message: so what it has is looked at, and nothing else. */
function joinLists(lists: Record<string, unknown[]>, needs: Needs): void {
  for (const name in needs) {
    const list: unknown = needs[name as keyof Needs];
    if (!Array.isArray(list) || list.length === 0) continue;
    const known = lists[name];
    if (known) for (const one of list) known.push(one);
    else lists[name] = Array.from<unknown>(list);
  }
}

const sumOf = (a: DueNeed, b: DueNeed): DueNeed => ({
  ...{ limit: a.limit + b.limit, lines: a.lines + b.lines, flows: a.flows + b.flows },
  ...{ schedules: a.schedules + b.schedules, waiters: a.waiters + b.waiters, turns: { ...a.turns, ...b.turns } },
});

const none: readonly never[] = [];

function mergeHeads(all: readonly LineHead[]): LineHead[] {
  const heads = new Map<string, LineHead>();
  for (const head of all) {
    const lane = laneOf(head.account, head.line);
    heads.set(lane, { ...head, limit: head.limit + (heads.get(lane)?.limit ?? 0) });
  }
  return [...heads.values()];
}

/** What the node has to know of a batch: its deliveries, those of them it may end, and the earliest row it left due for a claim. */
export function resultOf(set: WorkingSet, replies: Reply[]): BatchResult {
  let dueAt: Millis | null = null;
  const note = (at: Millis | null): void => {
    if (at !== null && (dueAt === null || at < dueAt)) dueAt = at;
  };
  for (const { now } of set.changes("messages")) if (now) note(now.dueAt);
  for (const { now } of set.changes("lines")) if (now) note(now.dueAt);
  for (const { now } of set.changes("flows")) if (now) note(now.dueAt);
  for (const { now } of set.changes("schedules")) if (now) note(now.dueAt);
  for (const { now } of set.changes("waiters")) if (now) note(now.dueAt);
  const { deliveries, calledOff, faults } = set.effects;
  return { replies, deliveries, calledOff, dueAt, faults };
}
