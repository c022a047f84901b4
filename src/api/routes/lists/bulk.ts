import type { z } from "zod";
import type { BulkInput } from "../../../engine/core/bulk/actions.ts";
import { bulkActions } from "../../../engine/core/bulk/actions.ts";
import type { BulkEntry, BulkOutcome, BulkSelection } from "../../../engine/core/bulk/entries.ts";
import { entryRefusals, readEntryName } from "../../../engine/core/bulk/entries.ts";
import { retentionFor } from "../../../engine/core/accounts/retention.ts";
import type { Account } from "../../../engine/core/model/account.ts";
import type { NotDone } from "../../../engine/core/values/errors.ts";
import { Refusal, toFailedMember } from "../../../engine/core/values/errors.ts";
import { listPortions, readSelection } from "../../../engine/store/queries/selection.ts";
import type { dryRunSchema } from "../../publishing/dryRun.ts";
import { dryRun } from "../../publishing/dryRun.ts";
import type { RouteContext, RouteResponse } from "../../route/route.ts";
import { formatRefusal } from "../../http/remedies.ts";

/** An action, its entries, and the settings that replace those of what is sent again. */
type BulkRequest = { account: Account } & Omit<BulkInput, "account" | "logRetention">;

/** `refused` are entries that were refused, with the reasons. They are unchanged. */
type Done = BulkOutcome & { refused: readonly NotDone[] };

/** The outcome of one transaction. `last` is the id of its last entry. */
type Part = Done & { last: string | null };

/**
 * Does an action with the entries of a request, in the portions of a job. If the storage fails after messages
 * or runs were sent again, returns the results of the entries before, and the last id of these as
 * `stoppedAt`. If the client continues from there and the error persists, nothing is sent again and the
 * response reports the error.
 */
export async function runBulk(
  { store, retention }: RouteContext,
  { account, entries, ...request }: BulkRequest,
): Promise<Done & { stoppedAt: string | null }> {
  const { together } = bulkActions[request.action];
  const input = { ...request, account: account.id, logRetention: retentionFor(account, retention).log };
  const parts: Part[] = [];
  try {
    for (let at = 0; at < entries.length; at += together)
      for await (const part of doPortion(store, { ...input, entries: entries.slice(at, at + together) }))
        parts.push(part);
  } catch (error) {
    const done = addUp(parts);
    if (done.results.length === 0) throw error;
    return { ...done, stoppedAt: parts.at(-1)?.last ?? null };
  }
  return { ...addUp(parts), stoppedAt: null };
}

/**
 * Does a portion in one transaction. If what it sends again is refused, does each entry in its own
 * transaction. Yields what each transaction did before the next begins.
 */
async function* doPortion(store: RouteContext["store"], portion: BulkInput): AsyncGenerator<Part> {
  const last = portion.entries.at(-1)?.id ?? null;
  let outcome: BulkOutcome;
  try {
    outcome = await store.execute("bulk", portion);
  } catch (error) {
    if (!bulkActions[portion.action].sendsAgain || !mayConcernEntry(error)) throw error;
    const [only, ...others] = portion.entries;
    if (only && others.length === 0)
      yield { ...addUp([]), refused: [{ id: readEntryName(only), reason: formatRefusal(error) }], last };
    else for (const entry of portion.entries) yield* doPortion(store, { ...portion, entries: [entry] });
    return;
  }
  yield { ...outcome, refused: [], last };
}

/** Reports whether a request was refused because of one entry, or of what its settings would do to it. */
const mayConcernEntry = (error: unknown): error is Refusal =>
  error instanceof Refusal && (entryRefusals.has(error.code) || error.code === "forbidden");

const addUp = (parts: readonly Done[]): Done => ({
  done: parts.reduce((sum, { done }) => sum + done, 0),
  failures: parts.flatMap(({ failures }) => failures),
  results: parts.flatMap(({ results }) => results),
  refused: parts.flatMap(({ refused }) => refused),
});

/** Counts the entries that a bulk action would change, up to `max`. */
const countSelection = (
  { store }: RouteContext,
  selection: BulkSelection & { account: string },
  max?: number,
): Promise<z.output<typeof dryRunSchema>> =>
  dryRun(async (cursor, count) => {
    const page = await readSelection(store.read, selection, { cursor, count });
    return { ids: page.entries.map(readEntryName), cursor: page.cursor };
  }, max);

/**
 * The `count` that clients send to cancel everything. It must not limit the request, because the response has
 * no cursor to continue with.
 */
export const meansAll = 100;

type CancelRequest = {
  account: Account;
  selection: BulkSelection;
  query: { count: number; dryRun?: "true" | "false" | undefined; details?: "true" | "false" | undefined };
  /** The maximum number of entries that one request cancels. */
  maxCancelled: number;
  /** The entries that the request names. Ids that no entry can have are in `unknown`. */
  named: { entries: readonly BulkEntry[]; unknown: readonly NotDone[] } | null;
};

/** Cancels the named entries, or those of a list. Returns the response. */
export async function cancelEntries(
  context: RouteContext,
  { account, selection, query, maxCancelled, named }: CancelRequest,
): Promise<RouteResponse> {
  const max = named || query.count === meansAll ? maxCancelled : query.count;
  if (query.dryRun === "true") {
    const body = await countSelection(context, { ...selection, account: account.id }, max);
    return { status: 200, body };
  }
  if (!named)
    return { status: 200, body: { cancelled: await cancelList(context, { account, selection, max }) } };
  const { action } = selection;
  const { done, failures } = await runBulk(context, { account, action, entries: named.entries });
  const failed = query.details === "true" ? toFailedMember([...named.unknown, ...failures]) : {};
  return { status: 200, body: { cancelled: done, ...failed } };
}

/** Cancels the entries of a list, a portion in a transaction each. Returns how many were cancelled. */
async function cancelList(
  context: RouteContext,
  { account, selection, max }: Pick<CancelRequest, "account" | "selection"> & { max: number },
): Promise<number> {
  const { action } = selection;
  let cancelled = 0;
  for await (const entries of listPortions(context.store.read, { ...selection, account: account.id }, max))
    cancelled += (await runBulk(context, { account, action, entries })).done;
  return cancelled;
}
