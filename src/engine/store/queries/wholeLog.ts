import type { Key, Rows, TableName } from "../../core/decision/command.ts";
import type { LogRow } from "../../core/model/logRow.ts";
import type { BodyOptions, Range, StorageReads } from "../layout/storageReads.ts";

/**
 * Returns the plain reads of a storage with the log and the kept log combined. An entry may move from the log
 * to the kept log between two reads. The log is read first, so that no entry is missed; an entry that is
 * found in both counts once.
 */
export function withKeptLog(storageReads: StorageReads): StorageReads {
  return {
    ...storageReads,
    rows: async <T extends TableName>(
      table: T,
      keys: readonly Key[],
      options?: BodyOptions,
    ): Promise<readonly Rows[T][]> => {
      const found = await storageReads.rows(table, keys, options);
      if (table !== "log" || found.length === keys.length) return found;
      const known = new Set((found as readonly LogRow[]).map(({ id }) => id));
      const missing = keys.filter(([, id = ""]) => !known.has(id));
      return [...found, ...((await storageReads.rows("keptLog", missing, options)) as readonly Rows[T][])];
    },
    range: async <T extends TableName>(table: T, range: Range): Promise<readonly Rows[T][]> => {
      const found = await storageReads.range(table, range);
      if (table !== "log") return found;
      return mergeLogs(
        found as readonly LogRow[],
        await storageReads.range("keptLog", range),
        range,
      ) as readonly Rows[T][];
    },
    messageLog: async (messageId, range) =>
      mergeLogs(
        await storageReads.messageLog(messageId, range),
        await storageReads.messageLog(messageId, range, "keptLog"),
        range,
      ),
    messageLogs: async (need) => {
      const log = await storageReads.messageLogs(need);
      const kept = await storageReads.messageLogs(need, "keptLog");
      if (kept.length === 0) return log;
      const byMessage = Map.groupBy([...log, ...kept], ({ messageId }) => messageId);
      return [...byMessage.values()].flatMap((rows) =>
        mergeLogs(rows, [], { descending: true, limit: need.limit }),
      );
    },
  };
}

/** Returns the first rows of both logs together, in the order of the range. */
function mergeLogs(
  log: readonly LogRow[],
  kept: readonly LogRow[],
  { descending = false, limit }: Omit<Range, "account">,
): readonly LogRow[] {
  if (kept.length === 0 && log.length <= limit) return log;
  const rows = [...new Map([...log, ...kept].map((row) => [row.id, row])).values()];
  return rows.sort((a, b) => (a.id < b.id !== descending ? -1 : 1)).slice(0, limit);
}
