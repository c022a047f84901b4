import type { GateFlow } from "../../core/explain/gateConditions.ts";
import { flowMinutes } from "../../core/explain/gateConditions.ts";
import { tagPrefix } from "../../core/search/tags.ts";
import type { AccountId, Millis } from "../../core/values/basics.ts";
import { firstIdAt } from "../../core/values/ids.ts";
import { minute } from "../../core/values/time.ts";
import type { StorageReads } from "../layout/storageReads.ts";

/** The rows of one minute that are counted. With more, it is not known whether a backlog grows. */
const maxOfMinute = 5_000;
/** The log entries of an attempt of a message that has waited: its start, and its end. */
const entriesOfAttempt = 2;

/**
 * Returns how many messages with a tag were published, and how many attempts of those that waited ended, in
 * each of the last minutes. Returns null if there were too many to count. Reads keys only.
 */
export async function readGateFlow(
  storageReads: StorageReads,
  { account, tag }: { account: AccountId; tag: string },
  now: Millis,
): Promise<readonly GateFlow[] | null> {
  const countTags = (list: "born" | "log", to: Millis): Promise<number> => {
    const prefix = tagPrefix(list, tag);
    const kind = list === "born" ? "msg" : "log";
    return storageReads.count("tags", {
      account,
      after: `${prefix}${firstIdAt(kind, to - minute)}`,
      before: `${prefix}${firstIdAt(kind, to)}`,
      limit: maxOfMinute + 1,
    });
  };
  let isComplete = true;
  const minutes = await Promise.all(
    Array.from({ length: flowMinutes }, async (_, ago): Promise<GateFlow> => {
      const to = now - ago * minute;
      const [published, entries] = await Promise.all([countTags("born", to), countTags("log", to)]);
      isComplete &&= Math.max(published, entries) <= maxOfMinute;
      return { published, ended: Math.ceil(entries / entriesOfAttempt) };
    }),
  );
  return isComplete ? minutes : null;
}
