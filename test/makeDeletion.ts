import type { BulkInput } from "../src/engine/core/bulk/actions.ts";

type Deletion = { account: string; dlqIds: readonly string[]; logRetention: number };

/** Returns the input of `bulk` that deletes dead letters. */
export const makeDeletion = ({ account, dlqIds, logRetention }: Deletion): BulkInput => ({
  account,
  action: "dlq.delete",
  entries: dlqIds.map((id) => ({ id })),
  logRetention,
});
