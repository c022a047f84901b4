import type { AccountId, Millis } from "../../../src/engine/core/values/basics.ts";
import { pickRunning } from "../../../src/engine/core/commands/endAttempts.ts";
import type { CommandCall } from "../../../src/engine/store/store.ts";
import type { RandomSource } from "../randomSource.ts";
import type { Tables } from "../storage/changes.ts";
import { schedules } from "./setUp.ts";

/**
 * Returns what a person does by hand. The person sends a message now, mostly one that waits for its delay or
 * its retry, ends running attempts, each twice, or runs a schedule.
 */
export function randomHandAction(
  random: RandomSource,
  account: AccountId,
  { tables, now }: { tables: Tables; now: Millis },
): CommandCall {
  const messages = [...tables.messages.values()].filter((state) => state.account === account);
  const held = messages.filter(({ state }) => state === "acknowledging");
  const running = [
    ...held.map(({ id, attempts }) => ({ messageId: id, attempt: attempts })),
    ...pickRunning(messages, now),
  ];
  if (running.length > 0 && random.isHit(0.3)) {
    const some = running.slice(0, random.integerBetween(1, 3));
    const stale = random.isHit(0.2) ? some.map((one) => ({ ...one, attempt: one.attempt + 1 })) : [];
    return { name: "endAttempts", input: { account, attempts: [...some, ...some, ...stale] } };
  }
  const waiting = messages.filter(({ state, dueAt }) => state === "pending" && (dueAt ?? 0) > now);
  const named = waiting.length > 0 && random.isHit(0.8) ? waiting : messages;
  return named.length > 0 && random.isHit(0.6)
    ? { name: "sendNow", input: { account, messageId: random.of(named).id } }
    : { name: "runSchedule", input: { account, id: random.of(schedules) } };
}
