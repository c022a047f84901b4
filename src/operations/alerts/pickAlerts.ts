import type { Alert, AlertEvent, AlertNotice, AlertSetting, ServerAlertSetting } from "./alert.ts";
import { alertEvents, droppedEvent } from "./alert.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import type { Condition, ConditionKind } from "../../engine/core/explain/condition.ts";
import type { ConditionFacts, ServerFacts } from "../../engine/core/explain/conditions.ts";
import { conditionWindow } from "../../engine/core/explain/condition.ts";
import { findDiskCondition, isStorageLow } from "../../engine/core/explain/conditions.ts";
import { fingerprint } from "../../engine/core/values/fingerprint.ts";
import { isSuccessStatus } from "../../engine/core/values/status.ts";
import { hour, minute, second } from "../../engine/core/values/time.ts";
import type { Attempted } from "../../engine/core/accounts/hostStatistics.ts";
import { readAttemptHost, wasAccepted } from "../../engine/core/accounts/hostStatistics.ts";

// Decides which events cause an alert, how often, and how an alert is repeated. Alerts are not messages: they
// use no quota, have no dead letters, and cause no other alerts.

/** How long a host must fail, or a message wait at a gate, unless the account says otherwise. */
export const defaultAlertAfter: Millis = 5 * minute;
/**
 * The maximum number of alerts of one event that an account has within an hour. Further ones are dropped and
 * counted. Each event has its own limit, so that many dead letters do not hide a full disk.
 */
export const maxAlertsPerEvent = 10;
/** The maximum number of dropped alerts of an account that are counted in an hour. */
export const maxDroppedPerHour = 1_000;
/** The maximum number of alerts of an account that are kept, and how long. */
export const maxKeptAlerts = 200;
/** How long alerts are kept. */
const alertRetention: Millis = 7 * 24 * hour;
/**
 * How far back events are looked for, and how long an alert is not repeated. A server that was down tells
 * about what happened before.
 */
export const alertWindow = conditionWindow;
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
/** The stored facts that cause alerts besides the conditions of an account. Both lists are bounded. */
export type AlertFacts = {
  /** Dead letters of the window. */
  deadLetters: readonly FailedFact[];
  /** The newest log entries. */
  log: readonly Attempted[];
};

type Situation = AlertFacts & {
  account: Pick<Account, "lastRotation"> & { alerts: AlertSetting };
  conditions: readonly Condition[];
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
      ...findConditionNotices(situation),
      ...findRecoveredHosts(situation),
      ...findRotationNotice(situation),
    ],
    { ...situation, events: situation.account.alerts.events },
  );

type NoticeFilter = { events: readonly AlertEvent[] } & Pick<Situation, "earlier" | "now">;

/** Returns the wanted notices that are not repetitions, up to the limit of each event. */
function pickNotices(found: readonly AlertNotice[], { events, earlier, now }: NoticeFilter): FoundAlerts {
  const recent = earlier.filter((alert) => isRecentAlert(alert, now));
  const known = new Set(recent.map(toKey));
  const dropped = new Set(earlier.flatMap((alert) => alert.dropped ?? []));
  const chosenEvents: readonly string[] = events;
  const fresh = found
    .map(cutNotice)
    .filter((notice) => chosenEvents.includes(notice.event) && !known.has(toKey(notice)))
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

function findDeadLetterNotices({ deadLetters }: Situation): AlertNotice[] {
  const groups = Map.groupBy(deadLetters, ({ url, status, error }) =>
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

/** The events of conditions whose name differs from the kind: a paused queue blocks its messages, too. */
const eventsOfKinds: Partial<Record<ConditionKind, AlertEvent>> = {
  "queue.paused": "queue.blocked",
  "key.paused": "key.blocked",
  "storage.full": "storage.low",
};
/** The events that cause an alert only after the time that the account has set. */
const patientEvents: ReadonlySet<AlertEvent> = new Set([
  "host.failing",
  "host.hanging",
  "queue.blocked",
  "key.blocked",
  "puller.missing",
  "schedule.late",
]);

/** The events that happen at one time. They stay a condition for longer than they cause alerts. */
const singleEvents: ReadonlySet<AlertEvent> = new Set(["schedule.refused", "schedule.failing"]);

const toEvent = (kind: ConditionKind): AlertEvent | undefined =>
  eventsOfKinds[kind] ?? alertEvents.find((event) => event === kind);

/** Returns the notices about conditions. Something that works as it was set up causes none. */
const findConditionNotices = ({ conditions, account: { alerts }, now }: Situation): AlertNotice[] =>
  conditions.flatMap((condition): AlertNotice[] => {
    const { kind, level, subject, text, count } = condition;
    const since = condition.oldestDueAt ?? condition.since ?? now;
    const event = toEvent(kind);
    // A host that may always take this long causes no alert.
    if (event === undefined || level === "note" || (kind === "host.hanging" && level !== "problem"))
      return [];
    if (patientEvents.has(event) && since > now - alerts.after) return [];
    if (singleEvents.has(event) && since <= now - alertWindow) return [];
    return [{ event, subject, text, ...(count !== null && { count }) }];
  });

/** Returns the notices about hosts that are well again after an alert that they failed. */
function findRecoveredHosts({ log, conditions, earlier }: Situation): AlertNotice[] {
  const troubled = new Set(
    conditions.flatMap(({ kind, subject }) => (kind === "host.failing" ? subject : [])),
  );
  const latest = new Map<string, Alert>();
  for (const alert of earlier)
    if (isAboutRecovery(alert.event) && !latest.has(alert.subject)) latest.set(alert.subject, alert);
  return [...latest.values()].flatMap(({ event, subject, createdAt }): AlertNotice[] => {
    const isWell = log.some(
      (row) => readAttemptHost(row) === subject && wasAccepted(row) && row.time > createdAt,
    );
    return event === "host.failing" && isWell && !troubled.has(subject)
      ? [{ event: "host.recovered", subject, text: `${subject} accepts deliveries again` }]
      : [];
  });
}

const isAboutRecovery = (event: AlertNotice["event"]): boolean =>
  event === "host.failing" || event === "host.recovered";

function findRotationNotice({ account, now }: Situation): AlertNotice[] {
  const rotatedAt = account.lastRotation?.at;
  if (rotatedAt === undefined || Math.abs(now - rotatedAt) >= alertWindow) return [];
  const subject = new Date(rotatedAt).toISOString();
  return [{ event: "signingKey.rotated", subject, text: "the signing keys were rotated" }];
}

/** The bytes that an account uses, and its limit. */
export type AccountStorage = Pick<Account, "id" | "name"> & ConditionFacts["storage"];

type ServerSituation = Pick<Situation, "earlier" | "now"> & {
  alerts: ServerAlertSetting;
  disk: ServerFacts["disk"];
  accounts: readonly AccountStorage[];
};

/** Returns the alerts about the server as a whole to create now. */
export function findServerNotices({ alerts, disk, accounts, ...filter }: ServerSituation): FoundAlerts {
  const full = accounts.filter(isStorageLow).map(({ id, name, used, max }): AlertNotice => ({
    event: "storage.low",
    subject: id,
    text: `account ${name}: ${used} of ${max} bytes are used; at the limit, publishes are refused`,
  }));
  const low = findDiskCondition(disk).map(({ subject, text }): AlertNotice => ({
    event: "disk.low",
    subject,
    text,
  }));
  return pickNotices([...low, ...full], { ...filter, events: alerts.events });
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
