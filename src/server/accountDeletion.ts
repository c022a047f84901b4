import type { BulkSelection } from "../engine/core/bulk/entries.ts";
import { readEntryName } from "../engine/core/bulk/entries.ts";
import type { Actor } from "../engine/core/model/auditEntry.ts";
import { Refusal } from "../engine/core/values/errors.ts";
import { parseGate } from "../engine/core/admission/gate.ts";
import type { Account } from "../engine/core/model/account.ts";
import type { AccountId, Millis } from "../engine/core/values/basics.ts";
import { readLimit } from "../engine/core/accounts/plans.ts";
import { served } from "../operations/served.ts";
import { listPortions } from "../engine/store/queries/selection.ts";
import type { Store } from "../engine/store/store.ts";

/** How many rows are removed together. */
const batchSize = 100;

/**
 * Deletes a disabled account with its resources, unfinished messages and dead letters. Its log and audit log
 * are kept until their retention ends, and the row of the account until both logs are empty. The last audit
 * entry names who deleted the account. An interrupted deletion can be repeated. Throws `Refusal`.
 */
export async function deleteAccountData(
  store: Store,
  id: AccountId,
  { logRetention, actor }: { logRetention: Millis; actor: Actor },
): Promise<Account> {
  const account = await store.read.account(id);
  if (!account) throw new Refusal("not-found", `${id}: account does not exist`);
  if (account.state !== "passive")
    throw new Refusal(
      "invalid",
      `${id}: the account is active; run "waypost account disable ${id}" first and check that ` +
        "nothing still uses it",
    );
  await deleteResources(store, id);
  // Runs are cancelled first, because they create more until they end: a run of a disabled account can still
  // invoke others, and a running delivery creates callbacks, which are messages.
  const retention = Math.min(logRetention, readLimit(account, "logRetention"));
  const selections: readonly BulkSelection[] = [
    { action: "runs.cancel", filter: { states: ["RUN_STARTED"] } },
    { action: "messages.cancel", filter: { belongsToRun: false } },
    { action: "dlq.delete", filter: {} },
  ];
  for (const selection of selections)
    await repeatUntilDone(() => doWithAll(store, { account: id, ...selection }, retention));
  await deleteLimiters(store, id);
  return store.execute("deleteAccount", { account: id, by: actor });
}

/** Removes the rows of a list in batches until it is empty. */
async function removeAll<Row>(
  list: () => Promise<readonly Row[]>,
  remove: (row: Row) => Promise<unknown>,
): Promise<void> {
  for (let rows = await list(); rows.length > 0; rows = await list()) await Promise.all(rows.map(remove));
}

async function deleteResources(store: Store, account: AccountId): Promise<void> {
  const { read, execute } = store;
  const range = { account, limit: batchSize, bodies: false as const };
  const createLister =
    <T extends "schedules" | "urlGroups" | "tokens">(table: T) =>
    () =>
      read.listResources(table, range);
  for (const { clearAccount } of served) await clearAccount?.(store, account);
  await removeAll(createLister("schedules"), ({ id }) => execute("deleteSchedule", { account, id }));
  await removeAll(createLister("tokens"), ({ id }) => execute("revokeToken", { account, id }));
  await removeAll(createLister("urlGroups"), ({ name }) => execute("deleteGroup", { account, name }));
}

/**
 * Repeats a pass over a list until it removes nothing. While a pass runs, messages and runs in flight can
 * create rows in the part of the list that the pass has left behind.
 */
async function repeatUntilDone(runOnce: () => Promise<number>): Promise<void> {
  while ((await runOnce()) > 0);
}

/** Does an action with all entries of a list. Returns with how many it succeeded. */
async function doWithAll(
  { read, execute }: Store,
  selection: BulkSelection & { account: AccountId },
  logRetention: Millis,
): Promise<number> {
  const { account, action } = selection;
  let done = 0;
  for await (const portion of listPortions(read, selection)) {
    // A run is named by its id alone, because it may have ended and a later one may have the same id.
    const entries = portion.map((entry) => ({ id: readEntryName(entry) }));
    done += (await execute("bulk", { account, action, entries, logRetention })).done;
  }
  return done;
}

/**
 * Deletes queues, and resumes and unpins keys. Idle keys are later removed by the retention task, which keeps
 * keys that are paused or pinned.
 */
async function deleteLimiters({ read, execute }: Store, account: AccountId): Promise<void> {
  for (let after = ""; ;) {
    const limiters = await read.listResources("limiters", { account, after, limit: batchSize });
    for (const { id } of limiters) {
      const { kind, name } = parseGate(id);
      await execute("resumeLimiter", { account, id });
      if (kind === "key")
        await execute("unpinFlowControl", { account, key: name, parallelism: true, rate: true });
      if (kind === "queue")
        await execute("deleteQueue", { account, name, slots: await read.listQueueSlots(account, name) });
    }
    const last = limiters.at(-1);
    if (!last || limiters.length < batchSize) return;
    after = last.id;
  }
}
