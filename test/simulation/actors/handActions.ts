import type { AccountId, Millis } from "../../../src/engine/core/values/basics.ts";
import type { CommandCall } from "../../../src/engine/store/store.ts";
import type { RandomSource } from "../randomSource.ts";
import type { Tables } from "../storage/changes.ts";
import { schedules } from "./setUp.ts";

/**
 * Returns what a person does by hand: sends a message now, mostly one that waits for its delay or its retry,
 * or runs a schedule.
 */
export function randomHandAction(
  random: RandomSource,
  account: AccountId,
  { tables, now }: { tables: Tables; now: Millis },
): CommandCall {
  const messages = [...tables.messages.values()].filter((state) => state.account === account);
  const waiting = messages.filter(({ state, dueAt }) => state === "pending" && (dueAt ?? 0) > now);
  const named = waiting.length > 0 && random.isHit(0.8) ? waiting : messages;
  return named.length > 0 && random.isHit(0.6)
    ? { name: "sendNow", input: { account, messageId: random.of(named).id } }
    : { name: "runSchedule", input: { account, id: random.of(schedules) } };
}
