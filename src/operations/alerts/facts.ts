import { listGateBounds, parseGate } from "../../engine/core/admission/gate.ts";
import type { AlertFacts } from "./pickAlerts.ts";
import { alertWindow, readDueTime } from "./pickAlerts.ts";
import type { AccountId, MessageId, Millis } from "../../engine/core/values/basics.ts";
import { listDeadLetters } from "../../engine/store/queries/deadLetters.ts";
import { hostLogEntries } from "../../engine/core/accounts/hostStatistics.ts";
import type { StorageReads } from "../../engine/store/layout/storageReads.ts";

/** The stored part of the facts on which alerts depend. */
export type StoredAlertFacts = Pick<AlertFacts, "deadLetters" | "log" | "blocked" | "schedules" | "sources">;

const maxDeadLetters = 200;
/** The most waiting messages of which the queues and keys are listed. */
const maxHeld = 1_000;
/** The most queues, and the most keys, whose oldest message is read. */
const maxWaitlists = 100;
const maxSchedules = 1_000;
const maxSources = 100;
const maxRejections = 100;

/** Reads what the alerts of an account depend on. Every read is bounded, and none reads a body. */
export async function readAlertFacts(
  storageReads: StorageReads,
  account: AccountId,
  now: Millis,
): Promise<StoredAlertFacts> {
  const whole = { account, bodies: false as const };
  const [letters, log, queues, keys, schedules, sources] = await Promise.all([
    listDeadLetters(storageReads, {
      ...whole,
      filter: { from: now - alertWindow },
      order: "latestFirst",
      cursor: null,
      count: maxDeadLetters,
    }),
    storageReads.range("log", { ...whole, descending: true, limit: hostLogEntries }),
    readBlocked(storageReads, account, "queue"),
    readBlocked(storageReads, account, "key"),
    storageReads.range("schedules", { ...whole, limit: maxSchedules }),
    readRejecting(storageReads, account, now),
  ]);
  return {
    deadLetters: letters.entries.map(({ deadLetter: { status, error }, message: { url } }) => ({
      url,
      status,
      error,
    })),
    log,
    blocked: [...queues, ...keys],
    schedules,
    sources,
  };
}

async function readBlocked(storageReads: StorageReads, account: AccountId, gate: "queue" | "key") {
  const { after, before } = listGateBounds(gate);
  const held = await storageReads.countHeld({ account, from: after, to: before, limit: maxHeld });
  const oldest = held.toSorted((a, b) => (a.oldestId < b.oldestId ? -1 : 1)).slice(0, maxWaitlists);
  const dueTimes = await readDueTimes(
    storageReads,
    account,
    oldest.map(({ oldestId }) => oldestId),
  );
  return oldest.flatMap(({ waitlist, oldestId }) => {
    const since = dueTimes.get(oldestId);
    return since === undefined ? [] : [{ gate, name: parseGate(waitlist).name, since }];
  });
}

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

async function readRejecting(storageReads: StorageReads, account: AccountId, now: Millis) {
  const sources = await storageReads.range("sources", { account, limit: maxSources });
  const found = await Promise.all(
    sources
      .filter(({ rejected }) => rejected > 0)
      .map(async ({ id, name }) => {
        const rejections = await storageReads.range("rejections", {
          ...{ account, after: `${id}/`, before: `${id}/~`, limit: maxRejections },
          bodies: false,
        });
        const recent = rejections.filter(({ time }) => time > now - alertWindow);
        const newest = recent.toSorted((a, b) => b.time - a.time)[0];
        const count = recent.reduce((sum, { others }) => sum + 1 + others, 0);
        return newest ? [{ id, name, rejections: count, reason: newest.reason }] : [];
      }),
  );
  return found.flat();
}
