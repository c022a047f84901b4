import type { DeadLetter } from "../../../../src/engine/core/model/deadLetter.ts";
import type { BulkSelection } from "../../../../src/engine/core/bulk/entries.ts";
import type { AccountId } from "../../../../src/engine/core/values/basics.ts";
import type { Run } from "../../../../src/engine/core/model/run.ts";
import type { MessageHistory } from "../../../simulation/checkers/messageHistory.ts";
import type { Tables } from "../../../simulation/storage/changes.ts";

/** The history of each message, by its id. */
export type Histories = ReadonlyMap<string, MessageHistory>;

/** Everything that a job may have as an entry, also what was removed, by id. */
export type Seen = {
  histories: Histories;
  deadLetters: ReadonlyMap<string, DeadLetter>;
  runs: ReadonlyMap<string, Run>;
};

/** The fields of an entry that filters can see. It is a dead letter, a message or a run. */
type Entry = {
  account: AccountId;
  id: string;
  /** When it became an entry: when its message or run was created, or when its message failed. */
  since: number;
  url: string;
  queue: string | null;
  key: string | null;
  status: number | null;
  runId: string | null;
};

type FilterTest = (entry: Entry, wanted: never) => boolean;

/** Each field of a filter that simulated clients use. Another field is a mistake of the simulation. */
const filterTests: Readonly<Record<string, FilterTest>> = {
  dlqIds: ({ id }, ids: readonly string[]) => ids.includes(id),
  queueNames: ({ queue }, names: readonly string[]) => names.includes(queue ?? ""),
  flowControlKeys: ({ key }, keys: readonly string[]) => keys.includes(key ?? ""),
  hosts: ({ url }, hosts: readonly string[]) => hosts.includes(new URL(url).host),
  urlStarts: ({ url }, starts: readonly string[]) => starts.some((start) => url.startsWith(start)),
  responseStatuses: ({ status }, statuses: readonly number[]) => statuses.includes(status ?? 0),
  belongsToRun: ({ runId }, belongs: boolean) => belongs === (runId !== null),
  runIdStarts: ({ runId }, starts: readonly string[]) =>
    starts.some((start) => runId?.startsWith(start) === true),
  states: (_, states: readonly string[]) => states.includes("RUN_STARTED"),
  to: ({ since }, to: number) => since <= to,
};

/** Reports whether an entry matches the filter of a job. */
export function matchesJob({ filter }: Pick<BulkSelection, "filter">, entry: Entry): boolean {
  return Object.entries(filter).every(([name, wanted]) => {
    const test = filterTests[name];
    if (!test) throw new Error(`the checker of jobs does not know the filter ${name}`);
    return test(entry, wanted as never);
  });
}

/** Returns the entry with this id, or null if there has never been one. */
export function findEntry(
  { action }: Pick<BulkSelection, "action">,
  id: string,
  { histories, deadLetters, runs }: Seen,
): Entry | null {
  if (action === "runs.cancel") {
    const run = runs.get(id);
    if (!run) return null;
    const { account, createdAt: since, url, runId, settings } = run;
    return {
      account,
      id,
      since,
      url,
      runId,
      queue: null,
      status: null,
      key: settings.flowControl?.key ?? null,
    };
  }
  const deadLetter = action === "messages.cancel" ? null : deadLetters.get(id);
  const history = histories.get(deadLetter?.messageId ?? id);
  if (deadLetter === undefined || !history) return null;
  const { account, createdAt, url, queue, flowControl } = history.message;
  return {
    ...{ account, id, url, queue, key: flowControl?.key ?? null },
    since: deadLetter ? history.endedAt : createdAt,
    status: deadLetter?.status ?? null,
    runId: deadLetter?.run?.runId ?? null,
  };
}

/** Returns the ids of the entries of an account that exist and match. */
export function listEntries(job: BulkSelection, account: AccountId, { tables, seen }: Existing): Set<string> {
  return new Set(
    listIds(job, tables).filter((id) => {
      const entry = findEntry(job, id, seen);
      return entry?.account === account && matchesJob(job, entry);
    }),
  );
}

type Existing = { tables: Tables; seen: Seen };

function listIds({ action }: BulkSelection, { messages, activeRuns, deadLetters }: Tables): string[] {
  if (action === "runs.cancel") return [...activeRuns.values()].map(({ run }) => run);
  if (action !== "messages.cancel") return [...deadLetters.values()].map(({ id }) => id);
  return [...messages.values()].flatMap(({ id, state, run }) =>
    run !== null || state === "cancelling" || state === "settled" ? [] : id,
  );
}
