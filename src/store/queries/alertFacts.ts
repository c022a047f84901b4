import { listGateBounds, parseGate } from "../../core/admission/gate.ts";
import type { AlertFacts } from "../../core/accounts/alerts.ts";
import { alertWindow } from "../../core/accounts/alerts.ts";
import type { AccountId, Millis } from "../../core/model/message.ts";
import { readIdTime } from "../../core/values/ids.ts";
import { listDeadLetters } from "./deadLetters.ts";
import { hostLogEntries } from "./situation.ts";
import type { StorageReads } from "./storageReads.ts";

/** The stored part of the facts on which alerts depend. */
export type StoredAlertFacts = Pick<AlertFacts, "deadLetters" | "log" | "blocked" | "schedules" | "sources">;

const maxDeadLetters = 200;
const maxWaitlists = 1_000;
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
  const held = await storageReads.countHeld({ account, from: after, to: before, limit: maxWaitlists });
  return held.map(({ waitlist, oldestId }) => ({
    gate,
    name: parseGate(waitlist).name,
    since: readIdTime(oldestId),
  }));
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
