import type { Rows } from "../../src/engine/core/decision/command.ts";
import type { AccountId, Bytes, Millis } from "../../src/engine/core/values/basics.ts";
import type { MessageState } from "../../src/engine/core/model/messageState.ts";
import { listRunBounds } from "../../src/engine/core/model/stepId.ts";
import { holders, isUnfinished } from "../../src/engine/core/model/messageState.ts";
import { noBytes } from "../../src/engine/core/values/basics.ts";
import type { Usage } from "../../src/engine/core/model/counts.ts";
import { bucketRangeFrom } from "../../src/engine/core/accounts/usage.ts";
import type {
  BodyOptions,
  DuePosition,
  WaitlistRange,
  RowSize,
  StorageReads,
  StoredSum,
  WorkRow,
  WorkTableName,
} from "../../src/engine/store/layout/storageReads.ts";
import { fillStoreCounts, readStoreCount } from "../../src/engine/core/explain/storeCounts.ts";
import { compareText, isDue, readOldestDue, sortByDue } from "./memoryDue.ts";
import type { Memory } from "./memoryRows.ts";
import { filterRows, listHeld, listOfRun, listRange, pick, withBodies } from "./memoryRows.ts";

/** Returns the size of a row as a database would store it: its settings are JSON there. */
function measureRow(row: object, { bodies }: BodyOptions): RowSize {
  const { body = noBytes, ...settings }: { body?: Bytes } = row;
  return { body: bodies === false ? 0 : body.byteLength, settings: JSON.stringify(settings).length };
}

const isSent = ({ leasedBy }: MessageState): boolean => !holders.includes(leasedBy ?? "");

/** Returns the storage reads of a memory store. */
export function createStorageReads(memory: Memory): StorageReads {
  const { accounts, deduplications, messages } = memory.tables;
  return {
    rows: async (table, keys, how) => pick(memory, table, keys).map(withBodies(how)),
    rangeSizes: async (table, range) => listRange(memory, table, range).map((row) => measureRow(row, range)),
    sizes: async (table, keys) =>
      new Map(pick(memory, table, keys).map(({ id, body }) => [id, body.byteLength])),
    range: async (table, range) => listRange(memory, table, range).map(withBodies(range)),
    messageLog: async (messageId, range, table = "log") =>
      listRange(memory, table, { ...range, limit: Infinity })
        .filter((row) => row.messageId === messageId)
        .slice(0, range.limit)
        .map(withBodies(range)),
    messageLogs: async ({ account, messageIds, limit }, table = "log") => {
      const wanted = new Set(messageIds);
      const rows = listRange(memory, table, { account, descending: true, limit: Infinity }).filter((row) =>
        wanted.has(row.messageId),
      );
      const byMessage = Map.groupBy(rows, ({ messageId }) => messageId);
      return [...byMessage.values()].flatMap((few) => few.slice(0, limit).map(withBodies({ bodies: false })));
    },
    messagesToHost: async (host, range) =>
      listRange(memory, "messages", { ...range, limit: Infinity })
        .filter((row) => row.host === host)
        .slice(0, range.limit),
    ...createUnfinishedReads(memory),
    countAhead: async ({ account, waitlist, id }, max) =>
      listHeld(memory, account, waitlist ?? "")
        .filter((row) => row.id < id)
        .slice(0, max).length,
    queueSlots: async ({ account, queue, after = "", limit }) =>
      listRange(memory, "queueSlots", { account, after, limit: Infinity })
        .filter((row) => row.queue === queue)
        .slice(0, limit),
    slotHolders: async (account, slot, limit) =>
      listRange(memory, "messages", { account, limit: Infinity })
        .filter((row) => row.slot === slot)
        .slice(0, limit),
    accountByToken: async (hash) =>
      [...accounts.values()].find(({ tokenHash }) => tokenHash === hash) ?? null,
    findIdBehind: async (table, account, newer) =>
      listRange(memory, table, { account, descending: true, limit: newer + 1 })[newer]?.id ?? null,
    count: async (table, range) => listRange(memory, table, range).length,
    earliestRunEnd: async (account, { failed }) => {
      const ends = filterRows(
        memory.tables.runs,
        (run) => run.account === account && (run.state === "RUN_FAILED") === failed,
      );
      return ends.reduce<Millis | null>(
        (least, { endedAt }) => (endedAt === null || (least ?? Infinity) < endedAt ? least : endedAt),
        null,
      );
    },
    runMessages: async (account, run) => listOfRun(messages, { account, run }),
    waitersOfRuns: async ({ account, runs, limit }) =>
      runs.flatMap((run) => listRange(memory, "waiters", { account, ...listRunBounds(run), limit })),
    stepIdsOfRuns: async ({ account, runs, limit }) =>
      runs.flatMap((run) =>
        listRange(memory, "steps", { account, ...listRunBounds(run), limit }).map(({ id }) => id),
      ),
    eventWaiters: async (event, range) =>
      listRange(memory, "waiters", { ...range, limit: Infinity })
        .filter((row) => row.event === event)
        .slice(0, range.limit),
    countWaiters: async ({ account, after, limit }) => {
      const first = listRange(memory, "waiters", { account, limit: Infinity })
        .filter(({ event }) => event !== "" && compareText(event, after) > 0)
        .sort((a, b) => compareText(a.event, b.event))
        .slice(0, limit);
      return [...Map.groupBy(first, ({ event }) => event)].map(([event, rows]) => ({
        event,
        count: rows.length,
        oldestId: rows[0]?.id ?? "",
      }));
    },
    tagSpans: async ({ account, start, end, width, after, before, limit }) => {
      const tags = listRange(memory, "tags", { account, after: start, before: end, limit: Infinity });
      const spans = [...Map.groupBy(tags, ({ id }) => id.slice(0, width))].slice(0, limit);
      return spans.flatMap(([tag, rows]) => {
        const ids = rows.map(({ id }) => id).filter((id) => id > tag + after && id < tag + before);
        return ids.length === 0 ? [] : { tag, first: ids[0] ?? "", last: ids.at(-1) ?? "" };
      });
    },
    countTags: async ({ account, ranges, limit }) =>
      ranges.map((range) => listRange(memory, "tags", { account, ...range, limit }).length),
    sourceBySecret: async (hash) =>
      [...memory.tables.sources.values()].find(({ secretHash }) => secretHash === hash) ?? null,
    encryptionStatus: async () => [],
    dueWork: async <T extends WorkTableName>(table: T, now: Millis, limit: number) => {
      const rows: ReadonlyMap<string, Rows[T] & WorkRow> = memory.tables[table];
      return [...rows.values()]
        .filter(({ dueAt }) => dueAt !== null && dueAt <= now)
        .sort(
          (a, b) =>
            (a.dueAt ?? 0) - (b.dueAt ?? 0) || compareText(a.account, b.account) || compareText(a.id, b.id),
        )
        .slice(0, limit);
    },
    oldestDue: async () => readOldestDue(memory),
    tokenByHash: async (hash) => [...memory.tables.tokens.values()].find((one) => one.hash === hash) ?? null,
    queueMessages: async ({ account, queue, limit }) =>
      filterRows(messages, (row) => row.account === account && row.queue === queue && isUnfinished(row))
        .map(({ id }) => id)
        .sort(compareText)
        .slice(0, limit),
    countLeased: async ({ account, now, until, scan }) =>
      sortByDue(filterRows(messages, isDue(until)), (a, b) => compareText(a.id, b.id))
        .filter(({ dueAt, leasedBy }) => dueAt !== null && dueAt > now && leasedBy !== null)
        .slice(0, scan)
        .filter((row) => row.account === account).length,
    storedBytes: async (ids, having) => ids.flatMap((account) => sumStoredBytes(memory, account, having)),
    storeFigures: async (maxLeased) => {
      const all = filterRows(messages, () => true);
      const counts = Object.groupBy(all, (row) => readStoreCount(row) ?? "leased");
      const due = all.flatMap(({ leasedBy, dueAt }) => (leasedBy === null && dueAt !== null ? [dueAt] : []));
      const { leased = [], ...others } = counts;
      return {
        counts: fillStoreCounts({
          ...Object.fromEntries(Object.entries(others).map(([name, rows]) => [name, rows.length])),
          deadLetters: memory.tables.deadLetters.size,
          activeRuns: memory.tables.activeRuns.size,
          waiters: memory.tables.waiters.size,
        }),
        leased: leased.slice(0, maxLeased).filter(isSent).length,
        acknowledging: leased.slice(0, maxLeased).filter((state) => !isSent(state)).length,
        oldestDueAt: due.length === 0 ? null : Math.min(...due),
      };
    },
    accounts: async () => [...accounts.values()].sort((a, b) => compareText(a.id, b.id)),
    earliestDeduplicationEnd: async (account) => {
      const ends = filterRows(deduplications, (row) => row.account === account).map(
        ({ expiresAt }) => expiresAt,
      );
      return ends.length === 0 ? null : ends.reduce((least, at) => Math.min(least, at));
    },
  };
}

/** Returns the reads that list unfinished messages. */
function createUnfinishedReads(
  memory: Memory,
): Pick<
  StorageReads,
  | "attemptedMessages"
  | "messagesByDue"
  | "heldMessages"
  | "leasedMessages"
  | "pausedLimiters"
  | "countHeld"
  | "countFailedRuns"
  | "pausedSchedules"
> {
  const { limiters, messages, runs, schedules } = memory.tables;
  const listInWaitlists = ({ account, from, to, limit }: WaitlistRange): MessageState[] =>
    filterRows(
      messages,
      (row) => row.account === account && row.waitlist !== null && row.waitlist >= from && row.waitlist <= to,
    ).slice(0, limit);
  return {
    attemptedMessages: async (range) =>
      listRange(memory, "messages", { ...range, limit: Infinity })
        .filter(({ attempts }) => attempts > 0)
        .slice(0, range.limit),
    messagesByDue: async ({ account, after, before, descending, limit }) => {
      const due = filterRows(messages, (row) => row.account === account && row.leasedBy === null).flatMap(
        (row) => (row.dueAt === null ? [] : [{ row, dueAt: row.dueAt, id: row.id }]),
      );
      const within = due
        .filter((one) => comparePositions(one, after) > 0 && comparePositions(one, before) < 0)
        .sort(comparePositions);
      return (descending ? within.reverse() : within).slice(0, limit).map(({ row }) => row);
    },
    heldMessages: async (range) => listInWaitlists(range),
    countHeld: async (range) =>
      [...Map.groupBy(listInWaitlists(range), ({ waitlist }) => waitlist ?? "")].map(([waitlist, held]) => ({
        waitlist,
        count: held.length,
        oldestId: held.map(({ id }) => id).sort(compareText)[0] ?? "",
      })),
    countFailedRuns: async ({ account, limit }) =>
      filterRows(runs, (run) => run.account === account && run.state === "RUN_FAILED").slice(0, limit).length,
    pausedSchedules: async ({ account, limit }) =>
      filterRows(schedules, (row) => row.account === account && row.dueAt === null)
        .map(({ id }) => id)
        .slice(0, limit),
    leasedMessages: async ({ account, scan }) => {
      const leased = filterRows(messages, ({ leasedBy }) => leasedBy !== null);
      return leased.length > scan ? null : leased.filter((row) => row.account === account);
    },
    pausedLimiters: async ({ account, limit }) =>
      filterRows(limiters, (row) => row.account === account && row.paused)
        .map(({ id }) => id)
        .sort(compareText)
        .slice(0, limit),
  };
}

const comparePositions = (a: DuePosition, b: DuePosition): number =>
  a.dueAt - b.dueAt || compareText(a.id, b.id);

function sumStoredBytes(
  memory: Memory,
  account: AccountId,
  having: { after: string; before: string },
): StoredSum[] {
  const buckets = (ids: { after: string; before: string }): Usage[] =>
    listRange(memory, "usage", { account, ...ids, limit: Infinity });
  if (buckets(having).length === 0) return [];
  return [
    {
      account,
      bytes: buckets(bucketRangeFrom("3h", 0)).reduce((sum, { storedBytes }) => sum + storedBytes, 0),
    },
  ];
}
