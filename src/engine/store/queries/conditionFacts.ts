import { hostLogEntries, wasAccepted } from "../../core/accounts/hostStatistics.ts";
import { findPulledOrigin } from "../../core/accounts/pulledOrigins.ts";
import type { Gate } from "../../core/admission/gate.ts";
import { formatGate, gateKinds, hasLimiter, listGateBounds, parseGate } from "../../core/admission/gate.ts";
import { toLimiterKey } from "../../core/admission/limiter.ts";
import type { ConditionFacts } from "../../core/explain/conditions.ts";
import { readStart } from "../../core/admission/lease.ts";
import type { HostInFlight } from "../../core/explain/hostConditions.ts";
import type { Account } from "../../core/model/account.ts";
import type { MessageState } from "../../core/model/messageState.ts";
import { isBeingSent } from "../../core/model/messageState.ts";
import type { GateFact, PauseFact } from "../../core/explain/gateConditions.ts";
import { growsAfter } from "../../core/explain/gateConditions.ts";
import type { LogRow } from "../../core/model/logRow.ts";
import type { StoredMessage } from "../../core/model/message.ts";
import type { Schedule } from "../../core/model/schedule.ts";
import type { AccountId, MessageId, Millis } from "../../core/values/basics.ts";
import { readScheduleTag, tagPrefix, toTag } from "../../core/search/tags.ts";
import { memory } from "../../core/values/limits.ts";
import { minute } from "../../core/values/time.ts";
import type { HeldCount, StorageReads } from "../layout/storageReads.ts";
import { countFittingPage } from "../layout/storageReads.ts";
import { readGateFlow } from "./gateFlows.ts";
import { readSlowRuns } from "./slowRuns.ts";

/** The stored part of the facts on which conditions depend. */
export type StoredConditionFacts = Pick<ConditionFacts, "log" | "gates" | "pauses" | "slowRuns"> & {
  /** The deliveries in flight of all nodes, by host. Null if too many are in flight. */
  inFlight: readonly HostInFlight[] | null;
  schedules: readonly Pick<Schedule, "id" | "dueAt" | "paused" | "lastAt" | "passedOver" | "remedy">[];
};

/** The held messages that one read counts. */
const heldOfRead = 1_000;
/** The reads that count the held messages of a kind of gate. */
const maxReads = 10;
/** The maximum number of gates of each kind whose oldest message is read. */
const maxWaitlists = 100;
const maxPaused = 1_000;
/** The messages in flight, of all accounts, up to which those of one account are looked for. */
const maxLeased = 10_000;
const maxSchedules = 1_000;
/** The schedules after the first ones that are read because they may have a condition. */
const maxOthers = 50;
/** The gates that let messages pass and whose flow is counted, those with the oldest messages first. */
const maxFlows = 5;
/** The maximum number of gates whose log entries are searched for a message that has passed. */
const maxSearched = 20;
/** The newest log entries of a gate among which an accepted message is looked for. */
const entriesOfGate = 20;
/** The newest entries of the audit log among which the pauses are. */
const maxAudit = 500;

/** Reads what the conditions of an account depend on. Every read is bounded, and none reads a body. */
export async function readConditionFacts(
  storageReads: StorageReads,
  account: AccountId,
  now: Millis,
): Promise<StoredConditionFacts> {
  const whole = { account, bodies: false as const };
  const [log, held, paused, leased, slowRuns] = await Promise.all([
    storageReads.range("log", { ...whole, descending: true, limit: hostLogEntries }),
    Promise.all(gateKinds.map((kind) => countHeld(storageReads, account, kind))),
    storageReads.pausedLimiters({ account, limit: maxPaused }),
    storageReads.leasedMessages({ account, scan: maxLeased }),
    readSlowRuns(storageReads, account, now),
  ]);
  const [gates, pauses, schedules] = await Promise.all([
    readGates(storageReads, { account, held: held.flat(), paused, log, now, leased }),
    paused.length > 0 ? readPauses(storageReads, account) : [],
    readSchedules(storageReads, { account, log, now }),
  ]);
  return { log, gates, pauses, schedules, slowRuns, inFlight: leased && sumInFlight(leased) };
}

/** Returns what is in flight to each host. Messages whose node has ended are left out. */
function sumInFlight(leased: readonly MessageState[]): HostInFlight[] {
  const byHost = new Map<string, HostInFlight>();
  for (const state of leased) {
    const since = readStart(state);
    if (since === null || !isBeingSent(state)) continue;
    const known = byHost.get(state.host);
    byHost.set(state.host, {
      host: state.host,
      count: (known?.count ?? 0) + 1,
      since: Math.min(known?.since ?? since, since),
    });
  }
  return [...byHost.values()];
}

/**
 * Returns the first schedules, as many as have settings that fit into memory, and of the others those that
 * are paused, late, or whose last message failed.
 */
async function readSchedules(
  storageReads: StorageReads,
  { account, log, now }: { account: AccountId; log: readonly LogRow[]; now: Millis },
): Promise<StoredConditionFacts["schedules"]> {
  const first = await readFirstSchedules(storageReads, account);
  if (first.length < maxSchedules) return first;
  const known = new Set(first.map(({ id }) => id));
  const failed = log.filter(({ states }) => states.includes("FAILED")).flatMap(({ tags }) => tags);
  const [paused, late] = await Promise.all([
    storageReads.pausedSchedules({ account, limit: maxSchedules }),
    storageReads.dueWork("schedules", now - minute, maxOthers),
  ]);
  const others = [
    ...failed.flatMap((tag) => readScheduleTag(tag) ?? []),
    ...late.flatMap((schedule) => (schedule.account === account ? schedule.id : [])),
    ...paused,
  ].filter((id) => !known.has(id));
  const keys = [...new Set(others)].slice(0, maxOthers).map((id) => [account, id] as const);
  return [...first, ...(await storageReads.rows("schedules", keys, { bodies: false }))];
}

async function readFirstSchedules(
  storageReads: StorageReads,
  account: AccountId,
): Promise<StoredConditionFacts["schedules"]> {
  const range = { account, limit: maxSchedules };
  const sizes = await storageReads.rangeSizes("schedules", range);
  const limit = countFittingPage(
    sizes.map(({ settings }) => settings),
    memory.settings,
  );
  return limit === 0 ? [] : storageReads.range("schedules", { ...range, limit, bodies: false });
}

type Counted = { held: HeldCount; more: boolean };

/** Returns the waitlists of a kind of gate, those with the oldest messages first. */
async function countHeld(
  storageReads: StorageReads,
  account: AccountId,
  kind: Gate["kind"],
): Promise<Counted[]> {
  const { after, before } = listGateBounds(kind);
  const held: HeldCount[] = [];
  let more = true;
  for (let read = 0, from = after; more && read < maxReads; read++) {
    const part = await storageReads.countHeld({ account, from, to: before, limit: heldOfRead });
    more = part.reduce((sum, { count }) => sum + count, 0) >= heldOfRead;
    held.push(...part);
    // The rest of the last waitlist is skipped: one with many messages must not hide those after it.
    const last = part
      .map(({ waitlist }) => waitlist)
      .toSorted()
      .at(-1);
    from = `${last}\u0001`;
  }
  return held
    .toSorted((a, b) => (a.oldestId < b.oldestId ? -1 : 1))
    .slice(0, maxWaitlists)
    .map((one) => ({ held: one, more }));
}

type Found = {
  account: AccountId;
  held: readonly Counted[];
  paused: readonly string[];
  log: readonly LogRow[];
  now: Millis;
  /** The leased messages of the account. Null if too many are leased. */
  leased: readonly MessageState[] | null;
};

async function readGates(
  storageReads: StorageReads,
  { account, held, paused, log, now, leased }: Found,
): Promise<GateFact[]> {
  const byGate = new Map(held.map((one) => [one.held.waitlist, one]));
  const gates = [...new Set([...byGate.keys(), ...paused])].map(parseGate);
  const limited = gates.filter(hasLimiter);
  const [limiters, passTimes, dueTimes, [owner]] = await Promise.all([
    storageReads.rows(
      "limiters",
      limited.map((gate) => toLimiterKey({ account, gate })),
    ),
    readPassTimes(storageReads, { account, held, log }),
    readDueTimes(
      storageReads,
      account,
      held.map((one) => one.held.oldestId),
    ),
    gates.some(({ kind }) => kind === "capacity") ? storageReads.rows("accounts", [[account]]) : [],
  ]);
  const limiterOf = new Map(limiters.map((limiter) => [limiter.id, limiter]));
  const flows = await readFlows(storageReads, { account, dueTimes, held }, now);
  return gates.map((gate) => {
    const id = formatGate(gate);
    const waiting = byGate.get(id);
    const limiter = limiterOf.get(id) ?? null;
    // The counter of a limiter is exact, and the read above has a limit.
    const counted = limiter ? { count: limiter.waiting, more: false } : null;
    return {
      gate,
      limiter,
      held: counted ?? { count: waiting?.held.count ?? 0, more: waiting?.more ?? false },
      dueAt: waiting === undefined ? null : (dueTimes.get(waiting.held.oldestId) ?? null),
      passedAt: passTimes.get(id) ?? null,
      flow: flows.get(id) ?? null,
      pulled: gate.kind === "capacity" && owner ? readPulled(gate.name, owner, leased) : null,
    };
  });
}

/** Returns the pulled origin of a host, and since when its clients hold attempts. */
function readPulled(host: string, owner: Account, leased: Found["leased"]): GateFact["pulled"] {
  const origin = findPulledOrigin(owner, host);
  const holds = leased?.flatMap((state) => (state.host === host ? (readStart(state) ?? []) : [])) ?? null;
  return origin === undefined ? null : { origin, holds };
}

type Waiting = { account: AccountId; dueTimes: ReadonlyMap<MessageId, Millis>; held: readonly Counted[] };

/** Returns the flow of the queues and keys whose messages have waited for the longest time, by gate. */
async function readFlows(
  storageReads: StorageReads,
  { account, dueTimes, held }: Waiting,
  now: Millis,
): Promise<ReadonlyMap<string, Awaited<ReturnType<typeof readGateFlow>>>> {
  const waiting = held.flatMap(({ held: { waitlist, oldestId } }) => {
    const tag = toGateTag(parseGate(waitlist));
    const dueAt = dueTimes.get(oldestId) ?? now;
    return tag !== null && dueAt <= now - growsAfter ? [{ waitlist, tag, dueAt }] : [];
  });
  const oldest = waiting.toSorted((a, b) => a.dueAt - b.dueAt).slice(0, maxFlows);
  const flows = await Promise.all(
    oldest.map(async ({ waitlist, tag }) => {
      const flow = await readGateFlow(storageReads, { account, tag }, now);
      return [waitlist, flow] as const;
    }),
  );
  return new Map(flows);
}

/** Returns when a message of each queue and key that holds messages was last accepted, by gate. */
async function readPassTimes(
  storageReads: StorageReads,
  { account, held, log }: Pick<Found, "account" | "held" | "log">,
): Promise<ReadonlyMap<string, Millis>> {
  const times = new Map<string, Millis>();
  const unknown: { id: string; tag: string }[] = [];
  for (const { waitlist: id } of held.map((one) => one.held)) {
    const tag = toGateTag(parseGate(id));
    if (tag === null) continue;
    const passed = log.find((row) => row.tags.includes(tag) && wasAccepted(row));
    if (passed) times.set(id, passed.time);
    else unknown.push({ id, tag });
  }
  // The newest part of the log of a busy account covers little time.
  if (log.length < hostLogEntries) return times;
  await Promise.all(
    unknown.slice(0, maxSearched).map(async ({ id, tag }) => {
      const prefix = tagPrefix("log", tag);
      const tagged = await storageReads.range("tags", {
        ...{ account, after: prefix, before: `${prefix}~`, descending: true, limit: entriesOfGate },
      });
      const rows = await storageReads.rows(
        "log",
        tagged.map((row) => [account, row.id.slice(prefix.length)]),
        { bodies: false },
      );
      const accepted = rows.flatMap((row) => (wasAccepted(row) ? row.time : []));
      if (accepted.length > 0) times.set(id, Math.max(...accepted));
    }),
  );
  return times;
}

const toGateTag = ({ kind, name }: Gate): string | null =>
  kind === "queue" ? toTag.queue(name) : kind === "key" ? toTag.key(name) : null;

/** Returns when messages that wait at a gate were due. Messages that have left the gate are missing. */
async function readDueTimes(
  storageReads: StorageReads,
  account: AccountId,
  ids: readonly MessageId[],
): Promise<ReadonlyMap<MessageId, Millis>> {
  const keys = ids.map((id) => [account, id] as const);
  const [states, messages] = await Promise.all([
    storageReads.rows("messages", keys),
    storageReads.rows("storedMessages", keys, { bodies: false }),
  ]);
  const byId = new Map(messages.map((message) => [message.id, message]));
  const times = await Promise.all(
    states.map(async ({ id, attempts }): Promise<[MessageId, Millis][]> => {
      const message = byId.get(id);
      if (!message) return [];
      const range = { account, descending: true, limit: 1, bodies: false } as const;
      const [last = null] = attempts > 0 ? await storageReads.messageLog(id, range) : [];
      return [[id, readDueTime(message, last)]];
    }),
  );
  return new Map(times.flat());
}

/** Returns when a message that waits at a gate was due. `last` is its newest log entry if it had attempts. */
const readDueTime = (
  { notBefore }: Pick<StoredMessage, "notBefore">,
  last: Pick<LogRow, "nextDueAt"> | null,
): Millis => Math.max(notBefore, last?.nextDueAt ?? 0);

async function readPauses(storageReads: StorageReads, account: AccountId): Promise<PauseFact[]> {
  const entries = await storageReads.range("audit", { account, descending: true, limit: maxAudit });
  return entries.flatMap(({ what, object, time, by }): PauseFact[] => {
    if (object === null) return [];
    if (what === "queue.pause") return [{ gate: { kind: "queue", name: object }, time, by }];
    if (what === "flowControl.pause") return [{ gate: { kind: "key", name: object }, time, by }];
    return [];
  });
}
