import type { BulkInput } from "../../../src/engine/core/bulk/actions.ts";
import type { BulkEntry } from "../../../src/engine/core/bulk/entries.ts";
import { bulkActionNames } from "../../../src/engine/core/bulk/entries.ts";
import type { RandomSource } from "../randomSource.ts";
import type { Tables } from "../storage/changes.ts";
import type { ClientState } from "./clients.ts";
import { pickSome, randomOverrides } from "./clients.ts";
import { listFailedRuns, listRuns, randomRunOverrides } from "./runClients.ts";

/** Returns a bulk action on some entries of an account. Some are named twice, some are gone or unknown. */
export function randomBulk(
  random: RandomSource,
  { account, messageIds, dlqIds }: ClientState,
  { tables, logRetention }: { tables: Tables; logRetention: number },
): BulkInput {
  const action = random.of(bulkActionNames);
  const named = { account, action, logRetention };
  const choose = (ids: readonly string[]): BulkEntry[] => {
    const chosen = pickSome(random, ids);
    return (random.isHit(0.2) ? [...chosen, ...chosen] : chosen).map((id) => ({ id }));
  };
  const runIdOf = (key: string): string => tables.runs.get(`${account}\n${key}`)?.runId ?? key;
  const byKey = ({ id }: BulkEntry): BulkEntry => ({ id, runId: runIdOf(id) });
  const byId = ({ id }: BulkEntry): BulkEntry => ({ id: runIdOf(id) });
  switch (action) {
    case "messages.cancel":
      return { ...named, entries: choose(messageIds) };
    case "runs.cancel": {
      const entries = choose(listRuns(tables, account).map(({ id }) => id));
      return { ...named, entries: random.isHit(0.5) ? entries.map(byKey) : entries.map(byId) };
    }
    case "dlq.delete":
      return { ...named, entries: choose(dlqIds) };
    case "dlq.retry":
      return { ...named, entries: choose(dlqIds), overrides: randomOverrides(random) };
    case "runs.resume":
    case "runs.restart": {
      const entries = choose(listFailedRuns(tables, account));
      const some = random.isHit(0.8) ? entries.slice(0, 1) : entries;
      return { ...named, entries: some, runOverrides: randomRunOverrides(random) };
    }
  }
}
