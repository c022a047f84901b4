import type { CommandInput } from "../../../src/engine/store/catalog/commands.ts";
import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import type { Step } from "../../../src/engine/core/model/run.ts";
import type { Tables } from "../storage/changes.ts";
import { listStepsRunOn, type AssertHolds, type ObservedBatch } from "./observedBatch.ts";
import {
  decodeText,
  isResult,
  parseStep,
  parseStepKey,
  type RunRecord,
  type RunRecords,
} from "./runRecord.ts";

/** Checks that responses are true. */
export function checkAnswers(
  demand: AssertHolds,
  { calls, result }: ObservedBatch,
  observed: { added: readonly Step[]; endedNow: ReadonlySet<RunRecord>; tables: Tables },
): void {
  calls.forEach(({ name, input }, index) => {
    const reply = result.replies[index];
    if (!reply || !("answer" in reply)) return;
    if (name === "notify") {
      const { notified, stored } = reply.answer as {
        notified: { messageId: string; waiter: { run: string } }[];
        stored: boolean;
      };
      const { body, account, ...rest } = input as CommandInput<"notify">;
      const out = Buffer.from(body).toString("base64");
      const results = observed.added.filter(
        (step) => isResult(step) && step.head?.stepType === "Wait" && parseStep(step).out === out,
      );
      for (const { messageId } of notified)
        demand(
          results.some((step) => step.messageId === messageId),
          `a waiter reported as notified has the event: ${messageId}`,
        );
      if (!stored || !("runId" in rest)) return;
      const isKept = [...observed.tables.notifications.values()].some(
        (one) => one.account === account && decodeText(one.body) === decodeText(body),
      );
      const isOver = [...observed.endedNow].some(({ run }) => run.runId === rest.runId);
      demand(
        isKept || isOver || results.length === 1,
        `an event reported as stored is stored: for ${rest.runId}`,
      );
    }
    if (name === "resumeRun") {
      const { account, dlqId } = input as CommandInput<"resumeRun">;
      demand(
        !observed.tables.deadLetters.has(`${account}\n${dlqId}`),
        `a resumed run is no longer a dead letter: ${dlqId}`,
      );
    }
    if (name === "finishRun" && (reply.answer as { finished: boolean }).finished) {
      const { runId } = input as CommandInput<"finishRun">;
      const hasEnded = [...observed.endedNow].some(({ run }) => run.runId === runId);
      demand(hasEnded, `a run reported as finished has ended: ${runId}`);
    }
  });
}

/** Checks that a step which is reported as stored in the short form is the result of its step. */
export function checkStepsRunOn({ records, demand }: RunRecords, observed: ObservedBatch): void {
  for (const { account, runId, head, body, runOn } of listStepsRunOn(observed)) {
    const runs = [...records.values()].filter(({ run }) => run.account === account && run.runId === runId);
    const owner = runs.find(({ slots }) => {
      const step = slots.get(`r${head.stepId}`);
      return step?.messageId === runOn.messageId && decodeText(step.body) === decodeText(body);
    });
    demand(
      owner !== undefined,
      `a step that is reported as stored is stored: ${head.stepId} of ${runId} in ${runOn.messageId}`,
    );
    demand(
      owner?.run.features.captured !== false,
      `the short form is only for clients that keep the settings of the start: ${runId}`,
    );
  }
}

/** Checks that a delivery carries the history up to its own step, and nothing after it. */
export function checkDelivery(
  { records, demand }: RunRecords,
  { message: { run, id, body } }: Delivery,
): void {
  const record = run && records.get(run.run);
  if (!run || !record || run.kind === "failure" || run.kind === "call") return;
  const steps = record.history
    .filter(({ position }) => position <= run.position)
    .sort((a, b) => a.position - b.position);
  const own = steps.at(-1);
  const entries = steps.map(({ messageId, body: bytes, callType }) => {
    return { messageId, body: Buffer.from(bytes).toString("base64"), callType };
  });
  const carried = steps.find((step) => parseStepKey(step.id) === run.stepKey);
  // The last step is that of the message, or one that has run on in its calls.
  demand(own?.messageId === id && carried?.messageId === id, `a message carries its own step: ${id}`);
  const later = record.history.filter((step) => step.messageId === id && step.position > run.position);
  demand(later.length === 0, `a call carries all steps that ran on in earlier calls of its message: ${id}`);
  const expected =
    run.kind === "result" ? decodeText(own?.body ?? new Uint8Array()) : JSON.stringify(entries);
  demand(
    decodeText(body) === expected,
    `a delivery carries the history up to its step: ${id} ${decodeText(body)} instead of ${expected}`,
  );
}
