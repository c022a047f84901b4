import { isBeingSent } from "../../model/messageState.ts";
import { readIdTime } from "../../values/ids.ts";
import type { LogRow, LogState } from "../../model/logRow.ts";
import type { MessageId, Millis } from "../../values/basics.ts";
import type { RunState } from "../../model/run.ts";
import type { StepItem } from "./step.ts";
import { makeStepItem } from "./step.ts";
import type { KnownRun, RunView, StepUnit } from "./view.ts";
import { isOwnMessage, groupUnits, makeRunView } from "./view.ts";

/** Something that happened in a run. `isFirst` is true for the first event of a step. */
export type RunEvent = {
  time: Millis;
  state: RunState | LogState | "WAITER_ADDED" | "INVOKED";
  messageId: MessageId | null;
  item: StepItem | null;
  row: LogRow | null;
  isFirst: boolean;
};

/**
 * Returns all known events of a run in the order of time. Events of an older run that this run resumes are
 * not included.
 */
export function listRunEvents(known: KnownRun, now: Millis): RunEvent[] {
  const view = makeRunView(known, now);
  const { run } = known;
  const noDetails = { messageId: null, item: null, row: null, isFirst: false };
  const events: RunEvent[] = [{ ...noDetails, time: run.createdAt, state: "RUN_STARTED" }];
  const reported = new Set<MessageId>();
  for (const unit of groupUnits(known))
    for (const event of listUnitEvents(view, unit, reported)) events.push(event);
  // Messages that belong to no step.
  const others = new Set([
    run.failure?.messageId,
    run.failure?.callback?.messageId,
    ...known.messages.map(({ id }) => id),
  ]);
  for (const row of known.log) {
    if (reported.has(row.messageId) || !others.has(row.messageId)) continue;
    for (const state of row.states)
      events.push({ ...noDetails, time: row.time, state, messageId: row.messageId, row });
  }
  if (run.state !== "RUN_STARTED")
    events.push({ ...noDetails, time: run.endedAt ?? run.createdAt, state: run.state });
  // The sort is stable, so events of the same time keep their order.
  events.sort((a, b) => a.time - b.time);
  const seen = new Set<StepItem>();
  return events.map((event) => {
    const isFirst = event.item !== null && !seen.has(event.item);
    if (event.item) seen.add(event.item);
    return Object.assign(event, { isFirst });
  });
}

function listUnitEvents(view: RunView, unit: StepUnit, reported: Set<MessageId>): RunEvent[] {
  const item = makeStepItem(view, unit, new Set());
  const base = { item, isFirst: false, row: null };
  const events: RunEvent[] = [];
  const waited = unit.waiter ?? unit.result?.waited;
  if (waited && waited.createdAt >= view.run.createdAt) {
    const invoked = waited.child !== null;
    events.push({
      ...base,
      time: waited.createdAt,
      state: invoked ? "INVOKED" : "WAITER_ADDED",
      messageId: waited.child?.messageId ?? null,
    });
  }
  for (const step of [unit.plan, unit.call, unit.answer, unit.result]) {
    // If an invoked run reports its result after this run has ended, no message carries the result. The
    // result then has the id of the first message of the invoked run.
    if (
      !step ||
      reported.has(step.messageId) ||
      !isOwnMessage(view, step.messageId) ||
      step.waited?.child?.messageId === step.messageId
    )
      continue;
    reported.add(step.messageId);
    const createdAt = Math.max(step.createdAt, readIdTime(step.messageId));
    for (const event of listMessageEvents(view, step.messageId, createdAt))
      events.push({ ...base, ...event });
  }
  return events;
}

type MessageEvent = Pick<RunEvent, "time" | "state" | "messageId" | "row">;

/**
 * Returns the events of a message. If a message was sent as soon as it was created, no log row records this.
 * Its ACTIVE event is derived from its later rows.
 */
function listMessageEvents(view: RunView, messageId: MessageId, createdAt: Millis): MessageEvent[] {
  const rows = view.listLog(messageId);
  const first = rows[0]?.states[0];
  const state = view.findState(messageId);
  const isSent =
    first === undefined
      ? state !== undefined && isBeingSent(state)
      : first === "ERROR" || first === "DELIVERED" || first === "ACKNOWLEDGING";
  return [
    { time: createdAt, state: "CREATED", messageId, row: null },
    ...(isSent ? [{ time: createdAt, state: "ACTIVE" as const, messageId, row: null }] : []),
    ...rows.flatMap((row) =>
      row.states.map((state): MessageEvent => ({ time: row.time, state, messageId, row })),
    ),
  ];
}
