import type { Alert, AlertEvent, AlertNotice, AlertSetting, ServerAlertSetting } from "./alert.ts";
import { droppedEvent } from "./alert.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import type { LogRow } from "../../engine/core/model/logRow.ts";
import type { Schedule } from "../../engine/core/model/schedule.ts";
import type { StoredMessage } from "../../engine/core/model/message.ts";
import { fingerprint } from "../../engine/core/values/fingerprint.ts";
import { isSuccessStatus } from "../../engine/core/values/status.ts";
import { hour, minute, second } from "../../engine/core/values/time.ts";
import type { HostFailures } from "../../engine/core/node/failingLanes.ts";
import type { Attempted, HostAttempts } from "../../engine/core/accounts/hostStatistics.ts";
import {
  readAttemptHost,
  sumAttemptsByHost,
  wasAccepted,
} from "../../engine/core/accounts/hostStatistics.ts";

// Decides which events cause an alert, how often, and how an alert is repeated. Alerts are not messages: they
// use no quota, have no dead letters, and cause no other alerts.

/** How long a host must fail, or a message wait at a gate, unless the account says otherwise. */
export const defaultAlertAfter: Millis = 5 * minute;
/**
 * The most alerts of one event that an account has within an hour. Further ones are dropped and counted. Each
 * event has its own limit, so that many dead letters do not hide a full disk.
 */
export const maxAlertsPerEvent = 10;
/** The most dropped alerts of an account that are counted in an hour. */
export const maxDroppedPerHour = 1_000;
/** The most alerts of an account that are kept, and how long. */
export const maxKeptAlerts = 200;
/** How long alerts are kept. */
const alertRetention: Millis = 7 * 24 * hour;
/**
 * How far back events are looked for, and how long an alert is not repeated. A server that was down tells
 * about what happened before.
 */
export const alertWindow: Millis = hour;
/** A node that sends an alert has this long before another node may send it. */
const alertLease: Millis = minute;
/** The timeout of a request with an alert. */
export const alertTimeout: Millis = 15 * second;
/** The pauses before the next attempts. After the last one, the alert has failed. */
const alertRetries: readonly Millis[] = [10 * second, minute, 10 * minute, hour];
const longestSubject = 300;
const longestText = 500;

/** A dead letter, as far as alerts need it. */
type FailedFact = { url: string; status: number | null; error: string | null };
/** The oldest message that waits at a gate with this name. `since`: when it was due. */
type BlockedFact = { gate: "queue" | "key"; name: string; since: Millis };
/** A source with rejections within the window. */
type RejectingFact = { id: string; name: string; rejections: number; reason: string };

/** The state of an account on which its alerts depend. Every list is bounded. */
export type AlertFacts = {
  /** Dead letters of the window, and whether there are more. */
  deadLetters: readonly FailedFact[];
  /** The newest log entries. */
  log: readonly Attempted[];
  /** The hosts whose last attempts by this node have failed. The log of a busy account covers little time. */
  failing: readonly HostFailures[];
  blocked: readonly BlockedFact[];
  schedules: readonly Pick<Schedule, "id" | "dueAt" | "paused" | "lastAt" | "passedOver" | "remedy">[];
  sources: readonly RejectingFact[];
  storage: { used: number; max: number };
  /** The disk of the server. Null if it is not this account's. */
  disk: { free: number; total: number } | null;
};

type Situation = {
  account: Pick<Account, "lastRotation"> & { alerts: AlertSetting };
  facts: AlertFacts;
  /** The alerts of the account that are kept, the newest first. */
  earlier: readonly Alert[];
  now: Millis;
};

/** The alerts to create, and the ids of those to drop because there are too many in this hour. */
export type FoundAlerts = { notices: AlertNotice[]; dropped: string[] };

/** Returns the alerts to create now. An alert is not repeated within an hour. */
export const findNotices = (situation: Situation): FoundAlerts =>
  pickNotices(
    [
      ...findDeadLetterNotices(situation),
      ...findHostNotices(situation),
      ...findGateNotices(situation),
      ...findScheduleNotices(situation),
      ...findOtherNotices(situation),
    ],
    { ...situation, events: situation.account.alerts.events },
  );

type NoticeFilter = { events: readonly AlertEvent[] } & Pick<Situation, "earlier" | "now">;

/** Returns the wanted notices that are not repetitions, up to the limit of each event. */
function pickNotices(found: readonly AlertNotice[], { events, earlier, now }: NoticeFilter): FoundAlerts {
  const recent = earlier.filter((alert) => isRecentAlert(alert, now));
  const known = new Set(recent.map(toKey));
  const dropped = new Set(earlier.flatMap((alert) => alert.dropped ?? []));
  const wanted: readonly string[] = events;
  const fresh = found
    .map(cutNotice)
    .filter((notice) => wanted.includes(notice.event) && !known.has(toKey(notice)))
    .filter((notice) => !dropped.has(toAlertId(notice, now)));
  const parts = [...Map.groupBy(fresh, ({ event }) => event)].map(([event, notices]) => {
    const room = Math.max(0, maxAlertsPerEvent - recent.filter((alert) => alert.event === event).length);
    return { notices: notices.slice(0, room), dropped: notices.slice(room) };
  });
  return {
    notices: parts.flatMap(({ notices }) => notices),
    dropped: parts.flatMap((part) => part.dropped.map((notice) => toAlertId(notice, now))),
  };
}

const toKey = ({ event, subject }: Pick<AlertNotice, "event" | "subject">): string => `${event} ${subject}`;

/** Reports whether an alert was created so short a time ago that it is not repeated. */
export const isRecentAlert = ({ createdAt }: Pick<Alert, "createdAt">, now: Millis): boolean =>
  createdAt > now - alertWindow;

const cutNotice = ({ event, subject, text, count }: AlertNotice): AlertNotice => ({
  event,
  subject: subject.slice(0, longestSubject),
  text: text.slice(0, longestText),
  ...(count !== undefined && { count }),
});

const toHour = (now: Millis): string => String(Math.floor(now / hour)).padStart(8, "0");

/** Returns the id of an alert: its hour, its event, and a hash of its subject. */
export const toAlertId = ({ event, subject }: Pick<AlertNotice, "event" | "subject">, now: Millis): string =>
  `${toHour(now)}-${event}-${fingerprint(subject)}`;

const formatCount = (count: number): string => `${count} message${count === 1 ? "" : "s"}`;

function findDeadLetterNotices({ facts }: Situation): AlertNotice[] {
  const groups = Map.groupBy(facts.deadLetters, ({ url, status, error }) =>
    // Without the query, which often differs for each message.
    [url.replace(/\?.*$/su, ""), status ?? error ?? "no response"].join(" "),
  );
  return [...groups].map(([subject, letters]) => ({
    event: "deadLetter.created",
    subject,
    count: letters.length,
    text: `${formatCount(letters.length)} failed for good within an hour: ${subject}`,
  }));
}

/** The fewest attempts to a host from which it counts as failing. */
const fewestAttempts = 3;

function findHostNotices(situation: Situation): AlertNotice[] {
  const { facts, earlier, account } = situation;
  const inLog = new Map(sumAttemptsByHost(facts.log).map((host) => [host.host, host]));
  const byNode = new Map(facts.failing.map((host) => [host.host, host]));
  return [...new Set([...inLog.keys(), ...byNode.keys()])].flatMap((host): AlertNotice[] => {
    const attempts = facts.log.filter((row) => readAttemptHost(row) === host);
    if (isFailing(attempts, byNode.get(host), situation)) {
      const known = inLog.get(host);
      const text = `${host} has failed for ${formatSpan(account.alerts.after)} or longer`;
      return [
        { event: "host.failing", subject: host, text: known ? `${text}: ${formatFailure(known)}` : text },
      ];
    }
    const last = earlier.find(({ subject, event }) => subject === host && event.startsWith("host."));
    const isWell = attempts.some((row) => wasAccepted(row) && row.time > (last?.createdAt ?? Infinity));
    return last?.event === "host.failing" && isWell
      ? [{ event: "host.recovered", subject: host, text: `${host} accepts deliveries again` }]
      : [];
  });
}

/**
 * Reports whether a host has accepted nothing since `after` or longer, in spite of several attempts.
 * `attempts` are those of all nodes in the newest part of the log, and `ofNode` is what this node has seen.
 */
function isFailing(
  attempts: AlertFacts["log"],
  ofNode: HostFailures | undefined,
  { account: { alerts }, now }: Pick<Situation, "account" | "now">,
): boolean {
  const lastSuccess = Math.max(0, ...attempts.flatMap((row) => (wasAccepted(row) ? [row.time] : [])));
  const inLog = attempts.flatMap(({ time }) => (time > lastSuccess ? [time] : []));
  const seen = ofNode && ofNode.since > lastSuccess ? ofNode : null;
  const times = [...inLog, ...(seen ? [seen.since, seen.last] : [])];
  return (
    Math.max(...times) > now - alertWindow &&
    Math.max(inLog.length, seen?.failures ?? 0) >= fewestAttempts &&
    Math.min(...times) <= now - alerts.after
  );
}

const formatFailure = ({ lastFailure }: HostAttempts): string =>
  typeof lastFailure?.status === "number"
    ? `status ${lastFailure.status}`
    : (lastFailure?.error ?? "no response");

const formatSpan = (span: Millis): string => `${Math.round(span / minute)} min`;

/** Returns when a message that waits at a gate was due. `last` is its newest log entry if it had attempts. */
export const readDueTime = (
  { notBefore }: Pick<StoredMessage, "notBefore">,
  last: Pick<LogRow, "nextDueAt"> | null,
): Millis => Math.max(notBefore, last?.nextDueAt ?? 0);

const findGateNotices = ({ facts, account: { alerts }, now }: Situation): AlertNotice[] =>
  facts.blocked
    .filter(({ since }) => since <= now - alerts.after)
    .map(({ gate, name, since }) => ({
      event: `${gate}.blocked`,
      subject: name,
      text: `${gate} ${name}: a message has waited for ${formatSpan(now - since)}`,
    }));

function findScheduleNotices({ facts, account: { alerts }, now }: Situation): AlertNotice[] {
  return facts.schedules.flatMap(({ id, dueAt, paused, lastAt, passedOver }): AlertNotice[] => {
    const isLate = !paused && dueAt !== null && dueAt <= now - alerts.after;
    const isRefused = passedOver !== undefined && lastAt !== null && lastAt > now - alertWindow;
    return [
      ...(isLate
        ? [{ event: "schedule.late" as const, subject: id, text: `schedule ${id} has not fired` }]
        : []),
      ...(isRefused
        ? [
            {
              event: "schedule.refused" as const,
              subject: id,
              text: `schedule ${id} published nothing: ${passedOver}`,
            },
          ]
        : []),
    ];
  });
}

/** From this share on, a quota or a disk is near its limit. */
const nearLimit = 0.9;

const isStorageLow = ({ used, max }: AlertFacts["storage"]): boolean => used >= nearLimit * max;

const findDiskNotices = (disk: AlertFacts["disk"]): AlertNotice[] =>
  disk !== null && disk.total - disk.free >= nearLimit * disk.total
    ? [
        {
          event: "disk.low",
          subject: "disk",
          text: `${disk.free} of ${disk.total} bytes of the disk are free`,
        },
      ]
    : [];

function findOtherNotices({ facts, account, now }: Situation): AlertNotice[] {
  const { storage, sources } = facts;
  const rotatedAt = account.lastRotation?.at;
  const notices: (AlertNotice | false)[] = [
    isStorageLow(storage) && {
      event: "storage.low",
      subject: "storage",
      text: `${storage.used} of ${storage.max} bytes are used; at the limit, publishes are refused`,
    },
    ...findDiskNotices(facts.disk),
    rotatedAt !== undefined &&
      Math.abs(now - rotatedAt) < alertWindow && {
        event: "signingKey.rotated",
        subject: new Date(rotatedAt).toISOString(),
        text: "the signing keys were rotated",
      },
    ...sources.map(({ id, name, rejections, reason }): AlertNotice => ({
      event: "source.rejecting",
      subject: id,
      count: rejections,
      text: `source ${name || id} rejected ${rejections} calls within an hour: ${reason}`,
    })),
  ];
  return notices.filter((notice) => notice !== false);
}

/** The bytes that an account uses, and its limit. */
export type AccountStorage = Pick<Account, "id" | "name"> & AlertFacts["storage"];

type ServerSituation = Pick<Situation, "earlier" | "now"> & {
  alerts: ServerAlertSetting;
  disk: AlertFacts["disk"];
  accounts: readonly AccountStorage[];
};

/** Returns the alerts about the server as a whole to create now. */
export function findServerNotices({ alerts, disk, accounts, ...filter }: ServerSituation): FoundAlerts {
  const full = accounts.filter(isStorageLow).map(({ id, name, used, max }): AlertNotice => ({
    event: "storage.low",
    subject: id,
    text: `account ${name}: ${used} of ${max} bytes are used; at the limit, publishes are refused`,
  }));
  return pickNotices([...findDiskNotices(disk), ...full], { ...filter, events: alerts.events });
}

/** Returns a new alert. */
export const makeAlert = (account: AccountId, notice: AlertNotice, now: Millis): Alert => ({
  ...notice,
  account,
  id: toAlertId(notice, now),
  createdAt: now,
  dueAt: now,
  state: "pending",
  attempts: 0,
  status: null,
  error: null,
});

/** Returns the id of the alert about the alerts that were dropped in an hour. */
export const toDroppedId = (now: Millis): string =>
  toAlertId({ event: droppedEvent, subject: "alerts" }, now);

/** Returns the alert about dropped alerts, with more of them. `before` is the alert so far, of this hour. */
export function countDropped(
  { account, now, before }: { account: AccountId; now: Millis; before: Alert | undefined },
  ids: readonly string[],
): Alert {
  const dropped = [...new Set([...(before?.dropped ?? []), ...ids])].slice(0, maxDroppedPerHour);
  const notice: AlertNotice = {
    event: droppedEvent,
    subject: "alerts",
    count: dropped.length,
    text:
      `${dropped.length} alerts were dropped in this hour: an event had more than ${maxAlertsPerEvent}, ` +
      "or they were held for too long",
  };
  return { ...(before ?? makeAlert(account, notice, now)), ...notice, dropped };
}

/** Returns an alert that a node sends now. No other node sends it until the lease has ended. */
export const leaseAlert = (alert: Alert, now: Millis): Alert => ({
  ...alert,
  attempts: alert.attempts + 1,
  dueAt: now + alertLease,
});

/** Returns an alert after an attempt. */
export function settleAlert(
  alert: Alert,
  { status, error }: { status: number | null; error: string | null },
  now: Millis,
): Alert {
  const result = { ...alert, status, error };
  if (isSuccessStatus(status)) return { ...result, state: "sent", dueAt: null };
  const pause = alertRetries[alert.attempts - 1];
  return pause === undefined
    ? { ...result, state: "failed", dueAt: null }
    : { ...result, dueAt: now + pause };
}

/** Returns the ids of the alerts that are not kept any more, of alerts with the newest first. */
export const listOldAlerts = (alerts: readonly Alert[], now: Millis): string[] =>
  alerts
    .filter(({ createdAt }, at) => at >= maxKeptAlerts || createdAt < now - alertRetention)
    .map(({ id }) => id);

/** Returns the body of the request with an alert. `account` is null if the alert is about the server. */
export const formatAlertBody = (
  account: Pick<Account, "id" | "name"> | null,
  { id, event, subject, text, count, createdAt }: Alert,
): string =>
  JSON.stringify({
    ...{ alertId: id, event, subject, text, time: createdAt },
    ...(count !== undefined && { count }),
    ...(account && { account: { id: account.id, name: account.name } }),
  });
