import { internal } from "../../engine/core/commands/kinds.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import type { StorageReads } from "../../engine/store/layout/storageReads.ts";
import type { StoredOperation } from "../../engine/store/layout/storedOperation.ts";
import { keyOfAccountRow } from "../../engine/store/layout/storedOperation.ts";
import { describeWorkTable, workTableSchema } from "../../engine/store/layout/workTable.ts";
import { addToAllSeries, removeSeries } from "./commands.ts";
import type { Series } from "./series.ts";
import { maxSeries } from "./series.ts";

declare module "../../engine/core/decision/command.ts" {
  interface Rows {
    series: Series;
  }
}

/** Requests that never became a message: refused, repeated and rejected ones. */
export const unpublished = {
  schema: workTableSchema("series"),
  tables: { series: describeWorkTable<Series>("series") },
  keys: { series: keyOfAccountRow },
  commands: { addToAllSeries: internal(addToAllSeries), removeSeries: internal(removeSeries) },
  createQueries: (reads: StorageReads) => ({
    /** Returns the series of an account. */
    series: (account: AccountId): Promise<readonly Series[]> =>
      reads.range("series", { account, limit: maxSeries + 1 }),
    /** Returns series of all accounts that have counted nothing for a week. */
    dueSeries: (now: Millis, limit: number): Promise<readonly Series[]> =>
      reads.dueWork("series", now, limit),
  }),
  secretTerms: [],
} satisfies StoredOperation;
