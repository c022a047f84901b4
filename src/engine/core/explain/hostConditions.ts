import type { Attempted } from "../accounts/hostStatistics.ts";
import { readAttemptHost, showsHost, sumAttemptsByHost, wasAccepted } from "../accounts/hostStatistics.ts";
import type { HostFailures } from "../node/failingLanes.ts";
import type { Millis } from "../values/basics.ts";
import { minute, second } from "../values/time.ts";
import type { Condition } from "./condition.ts";
import { conditionWindow, describeFailure, formatMany, formatSpan, makeCondition } from "./condition.ts";

/** The deliveries to a host that are in flight. `since`: when the oldest was sent. */
export type HostInFlight = { host: string; count: number; since: Millis };

/** The facts about hosts. Every list is bounded. */
export type HostFacts = {
  /** The newest log entries. */
  log: readonly Attempted[];
  /** The hosts whose last attempts by this node have failed. The log of a busy account covers little time. */
  failing: readonly HostFailures[];
  /** The deliveries in flight, of all nodes unless there are too many. */
  inFlight: readonly HostInFlight[];
  /** The hosts that this node was asked to publish to, and whose addresses may not be called. */
  refused: readonly RefusedHostFact[];
};

/**
 * A host whose address may not be called. `since`: when the account first published to it. `why` is worded
 * with its remedy.
 */
export type RefusedHostFact = { host: string; since: Millis; why: string };

/** The fewest attempts to a host from which it counts as failing. */
const fewestAttempts = 3;

/**
 * A host that has responded to nothing for this long hangs, unless it usually takes longer. A few deliveries
 * may be long calls, so they are given more time.
 */
const hangsAfter = { many: 20 * second, few: 5 * minute } as const;
/** A host hangs after this many times the duration that 95 % of its attempts do not exceed. */
const hangFactor = 4;

/** Returns the conditions of hosts. A host that fails because its address is refused is failing. */
export function findHostConditions(facts: HostFacts, now: Millis): Condition[] {
  const found = findAnsweringConditions(facts, now);
  const failing = new Set(found.flatMap(({ kind, subject }) => (kind === "host.failing" ? subject : [])));
  return [...found, ...findRefusedConditions(facts, now).filter(({ subject }) => !failing.has(subject))];
}

/** The error of an attempt whose destination has an address that may not be called. */
export const refusedAddress = /^address .*is not public/;

/** Returns the conditions of hosts whose addresses may not be called: from the log, and from publishes. */
function findRefusedConditions({ log, refused }: HostFacts, now: Millis): Condition[] {
  const published = new Map(refused.map((one) => [one.host, one.since]));
  const inLog = [...Map.groupBy(log, readAttemptHost)].flatMap(([host, rows]) => {
    const isRefused = ({ error }: Attempted): boolean => refusedAddress.test(error ?? "");
    const lastOther = Math.max(0, ...rows.flatMap((row) => (isRefused(row) ? [] : row.time)));
    const attempts = rows.filter((row) => row.time > lastOther).toSorted((a, b) => a.time - b.time);
    const [first, newest] = [attempts[0], attempts.at(-1)];
    if (host === undefined || !first || !newest || newest.time <= now - conditionWindow) return [];
    const publishedAt = published.get(host) ?? first.time;
    const since = publishedAt > lastOther ? Math.min(first.time, publishedAt) : first.time;
    return [makeRefusedCondition({ host, since }, newest.error ?? "")];
  });
  const known = new Set(inLog.map(({ subject }) => subject));
  return [
    ...inLog,
    ...refused.flatMap((one) => (known.has(one.host) ? [] : makeRefusedCondition(one, one.why))),
  ];
}

const makeRefusedCondition = ({ host, since }: { host: string; since: Millis }, why: string): Condition =>
  makeCondition({
    kind: "host.refused",
    level: "problem",
    subject: host,
    text: `Nothing is sent to ${host}: ${why}`,
    since,
  });

function findAnsweringConditions({ log, failing, inFlight }: HostFacts, now: Millis): Condition[] {
  const inLog = new Map(sumAttemptsByHost(log).map((host) => [host.host, host]));
  const byNode = new Map(failing.map((host) => [host.host, host]));
  const open = new Map(inFlight.map((host) => [host.host, host]));
  const rows = Map.groupBy(log.filter(showsHost), readAttemptHost);
  return [...new Set([...inLog.keys(), ...byNode.keys(), ...open.keys()])].flatMap((host) => {
    const attempts = rows.get(host) ?? [];
    const known = inLog.get(host);
    const since = findFailingSince(attempts, byNode.get(host), now);
    if (since !== null) {
      const answer = known?.lastFailure ? `: ${describeFailure(known.lastFailure)}` : "";
      return makeCondition({
        kind: "host.failing",
        level: "problem",
        subject: host,
        text: `${host} has accepted nothing for ${formatSpan(now - since)}${answer}`,
        since,
        count: open.get(host)?.count ?? null,
      });
    }
    const waiting = open.get(host);
    const usual = known?.p95 ?? null;
    if (!waiting || !isHanging(waiting, { attempts, usual }, now)) return [];
    return makeCondition({
      kind: "host.hanging",
      // A host may take this long always, if it is not known how long it usually takes.
      level: usual === null || waiting.count < fewestAttempts ? "warning" : "problem",
      subject: host,
      text:
        `${host} has answered none of ${formatMany(waiting.count, "delivery", "deliveries")} in flight for ` +
        formatSpan(now - waiting.since),
      since: waiting.since,
      count: waiting.count,
    });
  });
}

/**
 * Returns since when a host has accepted nothing in spite of several attempts, or null. `attempts` are those
 * of all nodes in the newest part of the log, and `ofNode` is what this node has seen.
 */
function findFailingSince(
  attempts: readonly Attempted[],
  ofNode: HostFailures | undefined,
  now: Millis,
): Millis | null {
  const lastSuccess = Math.max(0, ...attempts.flatMap((row) => (wasAccepted(row) ? [row.time] : [])));
  const inLog = attempts.flatMap(({ time }) => (time > lastSuccess ? [time] : []));
  const seen = ofNode && ofNode.since > lastSuccess ? ofNode : null;
  const times = [...inLog, ...(seen ? [seen.since, seen.last] : [])];
  const isFailing =
    Math.max(...times) > now - conditionWindow &&
    Math.max(inLog.length, seen?.failures ?? 0) >= fewestAttempts;
  return isFailing ? Math.min(...times) : null;
}

/** Reports whether a host answers nothing: it has accepted nothing since the oldest in flight was sent. */
const isHanging = (
  { count, since }: HostInFlight,
  { attempts, usual }: { attempts: readonly Attempted[]; usual: Millis | null },
  now: Millis,
): boolean =>
  now - since >= Math.max(hangsAfter[count < fewestAttempts ? "few" : "many"], hangFactor * (usual ?? 0)) &&
  attempts.every((row) => row.time < since || !wasAccepted(row));
