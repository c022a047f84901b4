import type { Decision, Draft, Moment } from "../../engine/core/decision/command.ts";
import { correctLimiter, correctSlot } from "../../engine/core/admission/counters.ts";
import { hasLimiter, parseGate } from "../../engine/core/admission/gate.ts";
import { readLimiter } from "../../engine/core/admission/limiter.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import { isWaiterOf } from "../../engine/core/model/run.ts";
import type { Suspect } from "./suspect.ts";
import { restoreState } from "../../engine/core/sending/createMessage.ts";

type RepairInput = { account: AccountId; suspect: Suspect };

/**
 * Repairs what the self-check has found twice. Does nothing if it is no longer so. A counter is corrected by
 * the difference that was found, because every command changes the counter together with the rows that it
 * counts, so that the difference stays the same.
 */
export const repair: Decision<RepairInput, { repaired: boolean }> = {
  decide: ({ account, suspect }, draft, moment) => {
    repairOne(draft, moment, { account, suspect });
    if (draft.hasChanged()) draft.record("repaired");
    return { repaired: draft.hasChanged() };
  },
};

function repairOne(draft: Draft, moment: Moment, { account, suspect }: RepairInput): void {
  const { kind, id } = suspect;
  if (kind === "waiter") {
    const waiter = draft.get("waiters", account, id);
    if (waiter && !isWaiterOf(waiter, draft.get("activeRuns", account, waiter.runId)))
      draft.drop("waiters", account, id);
  } else if (kind === "waits") {
    const active = draft.get("activeRuns", account, id);
    const waiting = active && draft.listRunRows("waiters", active).length;
    if (active && waiting !== undefined && waiting !== active.waiting)
      draft.put("activeRuns", { ...active, waiting });
  } else if (kind === "lostMessage") restoreMessage(draft, moment, { account, suspect });
  else if (kind === "slot") {
    const slot = draft.get("queueSlots", account, id);
    if (slot) correctSlot(draft, moment, { ...slot, holders: slot.holders + suspect.drift });
  } else if (kind === "limiter") {
    const gate = parseGate(id);
    if (hasLimiter(gate))
      correctLimiter(draft, moment, {
        limiter: readLimiter(draft, moment, { account, gate }),
        drift: suspect.drift,
      });
  } else if (!draft.get("hostWaitlists", account, id))
    draft.put("hostWaitlists", { account, host: id, dueAt: moment.now });
}

/** Sends a lost message of a run again, if the run still has nothing in flight. */
function restoreMessage(
  draft: Draft,
  moment: Moment,
  { account, suspect }: { account: AccountId; suspect: Extract<Suspect, { kind: "lostMessage" }> },
): void {
  const active = draft.get("activeRuns", account, suspect.id);
  const message = draft.inspectWithoutBody("storedMessages", account, suspect.messageId);
  if (!active || !message?.run || draft.get("messages", account, message.id)) return;
  if (draft.listRunRows("messages", active).length > 0) return;
  if (draft.listRunRows("waiters", active).length > 0) return;
  draft.put("messages", restoreState({ ...message, run: message.run }, moment.now));
}
