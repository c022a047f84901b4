import { findDrift, recount } from "./recount.ts";
import {
  accountGate,
  formatGate,
  hasLimiter,
  listGateBounds,
  parseGate,
} from "../../engine/core/admission/gate.ts";
import { newLimiter } from "../../engine/core/admission/limiter.ts";
import type { Rows } from "../../engine/core/decision/command.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import type { MessageState } from "../../engine/core/model/messageState.ts";
import type { Limiter } from "../../engine/core/model/limiter.ts";
import type { ActiveRun } from "../../engine/core/model/run.ts";
import { isWaiterOf } from "../../engine/core/model/run.ts";
import { recordsEnd } from "../../engine/core/model/logRow.ts";
import type { Suspect } from "./suspect.ts";
import type { Range, StorageReads } from "../../engine/store/layout/storageReads.ts";
import { toKeys } from "../../engine/store/layout/storageReads.ts";
import { withKeptLog } from "../../engine/store/queries/wholeLog.ts";

/** The parts of an account that are checked one after another. */
export const checkedParts = ["waiters", "activeRuns", "queueSlots", "limiters", "waitlists"] as const;
/** A part of an account that is checked. */
export type CheckedPart = (typeof checkedParts)[number];
/** The rows of a part that follow an id, at most `limit`. */
export type SuspectRange = { account: AccountId; part: CheckedPart; after: string; limit: number };
/** The suspects among the first rows. `next` is the id after which to continue, or null at the end. */
export type SuspectPage = { suspects: readonly Suspect[]; seen: number; next: string | null };

/** A count above this is not checked, so that a check reads a bounded number of rows. */
const mostCounted = 5_000;

/**
 * Looks for suspects among some rows of an account. Rows are read one after another without a lock. A row
 * that changes meanwhile is left for the next time. A suspect is real if it is found twice.
 */
export async function findSuspects(
  storageReads: StorageReads,
  { account, part, after, limit }: SuspectRange,
): Promise<SuspectPage> {
  if (part === "waitlists") {
    const suspects = await findUnservedWaitlists(storageReads, account);
    return { suspects, seen: suspects.length, next: null };
  }
  const range = { account, limit, ...(after === "" ? {} : { after }) };
  const { ids, suspects } = await partReaders[part](storageReads, range);
  const last = ids.at(-1);
  const next = last === undefined || ids.length < limit ? null : last;
  return { suspects, seen: ids.length, next };
}

type Found = { ids: readonly string[]; suspects: readonly Suspect[] };

const partReaders: {
  readonly [P in Exclude<CheckedPart, "waitlists">]: (
    storageReads: StorageReads,
    range: Range,
  ) => Promise<Found>;
} = {
  waiters: async (storageReads, range) => {
    const waiters = await storageReads.range("waiters", range);
    const keys = toKeys(
      range.account,
      waiters.map(({ runId }) => runId),
    );
    const active = new Map((await storageReads.rows("activeRuns", keys)).map((run) => [run.runId, run]));
    const lost = waiters.filter((waiter) => !isWaiterOf(waiter, active.get(waiter.runId)));
    return { ids: waiters.map(({ id }) => id), suspects: lost.map(({ id }) => ({ kind: "waiter", id })) };
  },
  activeRuns: async (storageReads, range) => {
    const { rows, stable } = await readStable(storageReads, range, {
      table: "activeRuns",
      idOf: ({ runId }) => runId,
      read: (runs) => Promise.all(runs.map((run) => checkRun(storageReads, run))),
    });
    return { ids: rows.map(({ runId }) => runId), suspects: stable.flat() };
  },
  queueSlots: async (storageReads, range) => {
    const { rows, stable } = await readStable(storageReads, range, {
      table: "queueSlots",
      idOf: ({ id }) => id,
      read: (slots) =>
        Promise.all(
          slots.map(async ({ account, id, holders }): Promise<Suspect[]> => {
            const counted = (await storageReads.slotHolders(account, id, mostCounted)).length;
            const isRight = counted === holders || counted === mostCounted;
            return isRight ? [] : [{ kind: "slot", id, drift: counted - holders }];
          }),
        ),
    });
    return { ids: rows.map(({ id }) => id), suspects: stable.flat() };
  },
  limiters: async (storageReads, range) => {
    const { rows, stable } = await readStable(storageReads, range, {
      table: "limiters",
      idOf: ({ id }) => id,
      read: (limiters) => checkLimiters(storageReads, limiters),
    });
    return { ids: rows.map(({ id }) => id), suspects: stable.flat() };
  },
};

type StableTable = "activeRuns" | "queueSlots" | "limiters";
type StableRead<T extends StableTable, Result> = {
  table: T;
  idOf(row: Rows[T]): string;
  read(rows: readonly Rows[T][]): Promise<readonly Result[]>;
};

/**
 * Reads rows, then what they count, then the same rows again. Returns the results of those rows that are
 * still the same.
 */
async function readStable<T extends StableTable, Result>(
  storageReads: StorageReads,
  range: Range,
  { table, idOf, read }: StableRead<T, Result>,
): Promise<{ rows: readonly Rows[T][]; stable: readonly Result[] }> {
  const rows = await storageReads.range(table, range);
  const results = rows.length === 0 ? [] : await read(rows);
  const again = await storageReads.rows(table, toKeys(range.account, rows.map(idOf)));
  const after = new Map(again.map((row) => [idOf(row), JSON.stringify(row)]));
  const stable = results.filter((_, at) => {
    const row = rows[at];
    return row !== undefined && after.get(idOf(row)) === JSON.stringify(row);
  });
  return { rows, stable };
}

const rowsOfRun = ({ account, run }: ActiveRun) => ({ account, after: `${run}/`, before: `${run}0` });

async function checkRun(storageReads: StorageReads, active: ActiveRun): Promise<Suspect[]> {
  const { account, runId, run, waiting } = active;
  const waiters = await storageReads.range("waiters", { ...rowsOfRun(active), limit: mostCounted });
  if (waiters.length !== waiting && waiters.length < mostCounted) return [{ kind: "waits", id: runId }];
  if (waiters.length > 0 || (await storageReads.runMessages(account, run)).length > 0) return [];
  const messageId = await findLostMessage(storageReads, active);
  return messageId === null ? [] : [{ kind: "lostMessage", id: runId, messageId }];
}

/**
 * Returns a message of an idle run that has neither a state nor an end. Returns null if all have ended: the
 * endpoint has accepted them, and the run waits for its next post.
 */
async function findLostMessage(storageReads: StorageReads, active: ActiveRun): Promise<string | null> {
  const { account, firstMessage } = active;
  const steps = await storageReads.range("steps", {
    ...rowsOfRun(active),
    limit: mostCounted,
    bodies: false,
  });
  const ids = [...new Set([firstMessage, ...steps.map(({ messageId }) => messageId)])];
  const stored = await storageReads.rows("storedMessages", toKeys(account, ids), { bodies: false });
  const states = await storageReads.rows("messages", toKeys(account, ids));
  const unfinished = new Set(states.map(({ id }) => id));
  const candidates = stored.filter(({ id, run }) => run !== undefined && !unfinished.has(id));
  if (candidates.length === 0) return null;
  const rows = await withKeptLog(storageReads).messageLogs({
    account,
    messageIds: candidates.map(({ id }) => id),
    limit: 3,
  });
  const logs = Map.groupBy(rows, ({ messageId }) => messageId);
  return candidates.find(({ id }) => !logs.get(id)?.some(recordsEnd))?.id ?? null;
}

async function checkLimiters(
  storageReads: StorageReads,
  limiters: readonly Limiter[],
): Promise<readonly Suspect[][]> {
  const [{ account } = { account: "" }] = limiters;
  const leased = await storageReads.leasedMessages({ account, scan: mostCounted });
  const heldByAccount = await readHeldByAccount(storageReads, account);
  return Promise.all(
    limiters.map(async (limiter): Promise<Suspect[]> => {
      const { id } = limiter;
      const gate = parseGate(id);
      if (!hasLimiter(gate) || leased === null || heldByAccount === null) return [];
      const held = await storageReads.countHeld({ account, from: id, to: id, limit: mostCounted });
      const waiting = held.find(({ waitlist }) => waitlist === id)?.count ?? 0;
      const slots =
        gate.kind === "queue"
          ? (await storageReads.queueSlots({ account, queue: gate.name, limit: mostCounted })).length
          : 0;
      if (Math.max(waiting, slots) === mostCounted) return [];
      const drift = findDrift(limiter, recount(gate, { leased, heldByAccount, slots, waiting }));
      return drift === null ? [] : [{ kind: "limiter", id, drift }];
    }),
  );
}

/** Returns the messages that wait for a limit of their account, or null if there are many. */
async function readHeldByAccount(
  storageReads: StorageReads,
  account: AccountId,
): Promise<readonly MessageState[] | null> {
  const id = formatGate(accountGate);
  const { after, before } = listGateBounds("endpoint");
  const held = [
    ...(await storageReads.heldMessages({ account, from: id, to: id, limit: mostCounted })),
    ...(await storageReads.heldMessages({ account, from: after, to: before, limit: mostCounted })),
  ];
  return held.length < mostCounted ? held : null;
}

/** Finds waitlists with messages for which no row says when they are served. */
async function findUnservedWaitlists(storageReads: StorageReads, account: AccountId): Promise<Suspect[]> {
  const held = await storageReads.countHeld({ account, from: "", to: "~", limit: mostCounted });
  const gates = held.map(({ waitlist, count }) => ({ gate: parseGate(waitlist), count }));
  const ids = gates.filter(({ gate }) => hasLimiter(gate)).map(({ gate }) => formatGate(gate));
  const hosts = gates.filter(({ gate }) => !hasLimiter(gate)).map(({ gate }) => gate.name);
  const known = new Set([
    ...(await storageReads.rows("limiters", toKeys(account, ids))).map(({ id }) => id),
    ...(await storageReads.rows("hostWaitlists", toKeys(account, hosts))).map(({ host }) => host),
  ]);
  return gates.flatMap(({ gate, count }): Suspect[] => {
    if (!hasLimiter(gate)) return known.has(gate.name) ? [] : [{ kind: "hostWaitlist", id: gate.name }];
    const id = formatGate(gate);
    if (known.has(id)) return [];
    const counted = { running: 0, waiting: count, waitingDownstream: 0 };
    const drift = findDrift(newLimiter({ account, gate }, 0), counted);
    return drift === null ? [] : [{ kind: "limiter", id, drift }];
  });
}
