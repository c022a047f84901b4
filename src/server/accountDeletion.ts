import type { Actor } from "../core/model/auditEntry.ts";
import { Refusal } from "../core/values/errors.ts";
import { parseGate } from "../core/admission/gate.ts";
import type { Account, AccountId, Millis } from "../core/model/message.ts";
import { limitOf } from "../core/accounts/plans.ts";
import type { Store } from "../store/store.ts";

/** So many of anything are removed together. */
const portion = 100;

/**
 * Deletes an account that is disabled, and all that it has: what it set up, what is not finished, its dead letters. Its log
 * goes when its time has come, and so does its audit log, whose last entry says by whom it was deleted; retention removes its row
 * behind them. Can be repeated when it was broken off. Throws `Refusal`.
 */
export async function deleteAccount(
  store: Store,
  id: AccountId,
  { logRetention, by }: { logRetention: Millis; by: Actor },
): Promise<Account> {
  const account = await store.read.account(id);
  if (!account) throw new Refusal("not-found", `${id}: there is no such account`);
  if (account.state !== "passive")
    throw new Refusal("invalid", `${id}: the account is active; "waypost account disable ${id}" first, and see that nobody misses it`);
  await deleteSetUp(store, id);
  // A run that goes on while its account is disabled invokes others, and what is being sent makes callbacks.
  await untilNothingIsDone(() => cancelRuns(store, id));
  await untilNothingIsDone(() => cancelMessages(store, id));
  const kept = Math.min(logRetention, limitOf(account, "logRetention"));
  await untilNothingIsDone(() => deleteDeadLetters(store, id, kept));
  await forgetFlows(store, id);
  return store.execute("deleteAccount", { account: id, by });
}

/** Removes rows of a list, portion by portion, until there is none. */
async function untilNone<Row>(list: () => Promise<readonly Row[]>, remove: (row: Row) => Promise<unknown>): Promise<void> {
  for (let rows = await list(); rows.length > 0; rows = await list()) await Promise.all(rows.map(remove));
}

async function deleteSetUp({ read, execute }: Store, account: AccountId): Promise<void> {
  const range = { account, limit: portion, bodies: false as const };
  const list =
    <T extends "schedules" | "sources" | "groups" | "tokens">(table: T) =>
    () =>
      read.allSetUp(table, range);
  await untilNone(list("schedules"), ({ id }) => execute("deleteSchedule", { account, id }));
  await untilNone(list("sources"), ({ id }) => execute("deleteSource", { account, id }));
  await untilNone(list("tokens"), ({ id }) => execute("revokeToken", { account, id }));
  await untilNone(list("groups"), ({ name }) => execute("deleteGroup", { account, name }));
}

/** Goes through a list again until there was nothing to do: what is under way can still make something behind the place it has come to. */
async function untilNothingIsDone(through: () => Promise<number>): Promise<void> {
  while ((await through()) > 0);
}

async function cancelRuns({ read, execute }: Store, account: AccountId): Promise<number> {
  let cancelled = 0;
  let cursor: string | null = null;
  do {
    const page: Awaited<ReturnType<typeof read.runs>> = await read.runs({
      account,
      filter: { states: ["RUN_STARTED"] },
      cursor,
      count: portion,
    });
    const runIds = page.runs.map(({ runId }) => runId);
    if (runIds.length > 0) cancelled += (await execute("cancelRuns", { account, runIds })).cancelled;
    ({ cursor } = page);
  } while (cursor !== null);
  return cancelled;
}

async function cancelMessages({ read, execute }: Store, account: AccountId): Promise<number> {
  let cancelled = 0;
  let cursor: string | null = null;
  do {
    const page: Awaited<ReturnType<typeof read.unfinished>> = await read.unfinished({
      account,
      filter: { ofRuns: false },
      cursor,
      count: portion,
    });
    if (page.messageIds.length > 0) cancelled += (await execute("cancel", { account, messageIds: page.messageIds })).cancelled;
    ({ cursor } = page);
  } while (cursor !== null);
  return cancelled;
}

async function deleteDeadLetters({ read, execute }: Store, account: AccountId, logRetention: Millis): Promise<number> {
  let deleted = 0;
  let cursor: string | null = null;
  do {
    const page: Awaited<ReturnType<typeof read.deadLetters>> = await read.deadLetters({
      ...{ account, filter: {}, order: "earliestFirst", cursor, count: portion, bodies: false },
    });
    const dlqIds = page.entries.map(({ letter }) => letter.id);
    if (dlqIds.length > 0) deleted += (await execute("deleteDeadLetters", { account, dlqIds, logRetention })).deleted;
    ({ cursor } = page);
  } while (cursor !== null);
  return deleted;
}

/** Queues go; keys are forgotten when they have been idle, which those that are paused or pinned would never be. */
async function forgetFlows({ read, execute }: Store, account: AccountId): Promise<void> {
  for (let after = ""; ;) {
    const flows = await read.allSetUp("flows", { account, after, limit: portion });
    for (const { id } of flows) {
      const { kind, name } = parseGate(id);
      await execute("resumeFlow", { account, id });
      if (kind === "key") await execute("unpinFlow", { account, key: name, parallelism: true, rate: true });
      if (kind === "queue") await execute("deleteQueue", { account, name, slots: await read.slotsOf(account, name) });
    }
    const last = flows.at(-1);
    if (!last || flows.length < portion) return;
    after = last.id;
  }
}
