import type { AccountId } from "../../../engine/core/values/basics.ts";
import type { Store } from "../../../engine/store/store.ts";
import type { ScheduleState } from "../../fields/schedule.ts";

/** Returns the states of messages. A message about which nothing is known is left out. */
export async function readMessageStates(
  store: Store,
  account: AccountId,
  ids: readonly string[],
): Promise<ReadonlyMap<string, ScheduleState>> {
  const states = new Map<string, ScheduleState>();
  if (ids.length === 0) return states;
  const { messageIds } = await store.read.unfinished({
    account,
    filter: { messageIds: ids },
    cursor: null,
    count: ids.length,
  });
  for (const id of messageIds) states.set(id, "IN_PROGRESS");
  const finished = ids.filter((id) => !states.has(id));
  for (let at = 0; at < finished.length; at += 50) {
    for (const [id, state] of await readOutcomes(store, account, finished.slice(at, at + 50)))
      states.set(id, state);
  }
  return states;
}

async function readOutcomes(
  store: Store,
  account: AccountId,
  ids: readonly string[],
): Promise<[id: string, state: ScheduleState][]> {
  const outcomes: [string, ScheduleState][] = [];
  let cursor: string | null = null;
  do {
    const filter = {
      messageIds: ids,
      states: ["DELIVERED", "FAILED", "CANCEL_REQUESTED", "CANCELLED"],
    } as const;
    const page: Awaited<ReturnType<Store["read"]["log"]>> = await store.read.log({
      account,
      filter,
      order: "earliestFirst",
      cursor,
      count: 50,
    });
    for (const { message, state } of page.events)
      outcomes.push([message.id, state === "DELIVERED" ? "SUCCESS" : "FAIL"]);
    ({ cursor } = page);
  } while (cursor !== null);
  return outcomes;
}
