import type { Routes } from "../../api/schema.ts";
import { formatClock, formatCount, formatMany, formatRelative, formatSpan } from "../../parts/words.ts";

/** A run of the list. */
export type ListedRun = Routes["GET /v2/workflows/runs"]["response"]["runs"][number];

/** The maximum number of squares of a run. The last ones are those of its newest steps. */
const maxSquares = 12;

/** The kind of a square: a step that is done, that runs, that waits, or that failed. */
export type Square = "done" | "runs" | "waits" | "failed";

/**
 * Returns the squares of a run: its done steps, and the step that it is at. Empty: its steps are not known.
 */
export function toSquares({ progress, workflowState }: ListedRun): Square[] {
  if (progress?.stepsDone === undefined) return [];
  const at: Square[] =
    workflowState === "RUN_FAILED"
      ? ["failed"]
      : workflowState === "RUN_STARTED"
        ? [isWaiting(progress.waitingOn?.reason) ? "waits" : "runs"]
        : [];
  const done = Array.from({ length: progress.stepsDone }, (): Square => "done");
  return [...done, ...at].slice(-maxSquares);
}

const isWaiting = (reason: string | undefined): boolean =>
  reason !== undefined && /^(?:event|webhook|run|sleep|held)$/.test(reason);

/** Returns how many steps of a run are done. */
export function describeSteps({ progress, historyEntries }: ListedRun): string {
  if (progress?.stepsDone === undefined) return formatMany(historyEntries, "entry", "entries");
  return `${formatCount(progress.stepsDone)} done`;
}

/** Why a run waits: in a few words, with the name that they are about, and what is known of the time. */
export type ShownWait = { text: string; name: string; when: string };

/** Returns why a run waits. Null if it is not known. */
export function describeRunWait({ progress }: ListedRun, now: number): ShownWait | null {
  const wait = progress?.waitingOn;
  if (!wait) return null;
  const { eventId = "", workflowRunId = "", since, until, gate = "" } = wait;
  const when = [
    since !== undefined && `since ${formatClock(since, now)}`,
    until !== undefined && `until ${formatClock(until, now)}`,
  ]
    .filter(Boolean)
    .join(", ");
  const at = until === undefined ? "" : formatRelative(until, now);
  switch (wait.reason) {
    case "event":
      return { text: "waits for event", name: eventId, when };
    case "webhook":
      return { text: "waits for a call to webhook", name: eventId, when };
    case "run":
      return { text: "waits for run", name: workflowRunId, when };
    case "sleep":
      return { text: "sleeps until", name: until === undefined ? "" : formatClock(until, now), when: at };
    case "retry":
      return { text: "retries the call of its endpoint", name: "", when: at };
    case "held":
      return { text: "held at gate", name: gate, when: "" };
    case "sending":
      return {
        text: "calls its endpoint",
        name: "",
        when: since === undefined ? "" : `for ${formatSpan(now - since)}`,
      };
  }
}
