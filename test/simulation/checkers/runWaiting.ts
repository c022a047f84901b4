import type { Step } from "../../../src/engine/core/model/run.ts";
import type { ObservedBatch } from "./observedBatch.ts";
import { isResult, parseStep, parseStepKey, type RunRecord, type RunRecords } from "./runRecord.ts";

/** Checks waiting steps against their results and timeouts. */
export function noteWaiters(
  { records, demand }: RunRecords,
  { changes }: ObservedBatch,
  observed: { added: readonly Step[]; endedNow: ReadonlySet<RunRecord>; now: number },
): void {
  for (const { before, after } of changes.waiters) {
    const row = after ?? before;
    const record = row && records.get(row.run);
    if (!row || !record) continue;
    const result = record.slots.get(`r${parseStepKey(row.id)}`);
    if (after) {
      demand(result === undefined, `a waiting step has no result yet: ${row.id}`);
      const dueAt =
        after.kind === "invoke" ? null : after.createdAt + Number.parseInt(after.timeout, 10) * 1000;
      demand(after.dueAt === dueAt, `every wait except for a run has its requested timeout: ${row.id}`);
      record.waiters.add(row.id);
      continue;
    }
    record.waiters.delete(row.id);
    demand(result !== undefined || record.ended, `a wait ends with a result or with its run: ${row.id}`);
    if (!result || !observed.added.includes(result) || row.kind === "invoke") continue;
    const { waitTimeout } = parseStep(result);
    demand(
      !waitTimeout || (row.dueAt ?? Infinity) <= observed.now,
      `a wait does not end before its timeout: ${row.id}`,
    );
  }
}

/** Checks that stored notifications are taken once. */
export function noteNotifications(
  { records, demand }: RunRecords,
  { changes }: ObservedBatch,
  {
    added,
    endedNow,
    cover,
  }: { added: readonly Step[]; endedNow: ReadonlySet<RunRecord>; cover: (what: string) => void },
): void {
  noteTaken({ records, demand }, changes.notifications, { added, endedNow, cover });
  for (const step of added.filter(isResult)) {
    const { out } = parseStep(step);
    const left = [...(records.get(step.run)?.notifications.values() ?? [])];
    demand(
      out === undefined || !left.includes(out),
      `a notification is removed when a step takes it: ${step.id}`,
    );
  }
}

function noteTaken(
  { records, demand }: RunRecords,
  changed: ObservedBatch["changes"]["notifications"],
  {
    added,
    endedNow,
    cover,
  }: { added: readonly Step[]; endedNow: ReadonlySet<RunRecord>; cover: (what: string) => void },
): void {
  for (const { before, after } of changed) {
    const row = after ?? before;
    const record = row && records.get(row.run);
    if (!row || !record) continue;
    if (after) {
      cover("event kept");
      record.notifications.set(row.id, Buffer.from(row.body).toString("base64"));
      continue;
    }
    record.notifications.delete(row.id);
    const out = Buffer.from(row.body).toString("base64");
    const taken = added.filter(
      (step) => step.run === row.run && isResult(step) && parseStep(step).out === out,
    );
    if (taken.length > 0) cover("event taken");
    demand(taken.length === 1 || endedNow.has(record), `a stored notification is taken once: ${row.id}`);
  }
}
