import type { Api, OutputFlags } from "./api.ts";
import { apiPath } from "./apiPath.ts";
import { outageTimeout, pause, printShown, tolerateOutages } from "./api.ts";
import { CommandFailed, exitCodes } from "./terminal/commandFailed.ts";
import type { Fields } from "./terminal/fields.ts";
import { readLine, readNumber, readObjects } from "./terminal/fields.ts";
import { fitLine, toSafeLine } from "./terminal/safeText.ts";
import { formatPairs } from "./terminal/table.ts";
import { note, styled } from "./terminal/terminal.ts";
import { formatTime } from "./terminal/times.ts";

/** How often the progress is read, in milliseconds. */
const interval = 500;

/**
 * Shows the progress of a job until it has ended, and then its result. If a person interrupts the command,
 * the job continues, and the command says how to stop it. Fails if the job did not do everything, or if the
 * server is unavailable for `patience` milliseconds.
 */
export async function followJob(
  api: Api,
  id: string,
  { flags, patience = outageTimeout }: { flags: OutputFlags; patience?: number },
): Promise<void> {
  const safeId = toSafeLine(id);
  const whatNext =
    `the job continues; "waypost jobs stop ${safeId}" stops it, ` +
    `"waypost jobs wait ${safeId}" shows it again`;
  const leave = (): never => {
    if (process.stderr.isTTY) process.stderr.write("\n");
    note(whatNext);
    process.exit(exitCodes.interrupted);
  };
  const attempt = tolerateOutages(patience);
  process.once("SIGINT", leave);
  try {
    for (;;) {
      let job: Fields | null = null;
      await attempt(async () => {
        job = await readJob(api, id);
      }).catch((error: unknown) => {
        if (error instanceof CommandFailed && error.exitCode === exitCodes.unavailable) note(whatNext);
        throw error;
      });
      if (job !== null) showBar(job);
      if (job !== null && hasEnded(job)) return showEnd(job, flags);
      await pause(interval);
    }
  } finally {
    process.off("SIGINT", leave);
  }
}

/** The fields that every job has. */
export const neededOfJob = {
  one: { jobId: "string", action: "string", state: "string", done: "number", failed: "number" },
} as const;

/** Reads a job. */
export const readJob = (api: Api, id: string): Promise<Fields> =>
  api.read({ path: apiPath`/v2/jobs/${id}`, needs: neededOfJob });

const hasEnded = (job: Fields): boolean => ["stopped", "done", "failed"].includes(readLine(job, "state"));

/** Draws the progress on a terminal. Programs see only the end. */
function showBar(job: Fields): void {
  if (!process.stderr.isTTY) return;
  const handled = countHandled(job);
  const total = readNumber(job, "total");
  const width = 30;
  const share = total !== null && total > 0 ? Math.floor((width * handled) / total) : 0;
  const filled = Math.min(width, Math.max(0, share));
  const bar = `[${"#".repeat(filled)}${"-".repeat(width - filled)}]`;
  const failed = readNumber(job, "failed") ?? 0;
  const parts = [bar, `${handled}/${total ?? "…"}`, ...(failed > 0 ? [`${failed} failed`] : [])];
  const line = `${parts.join("  ")}  ${readLine(job, "state")}`;
  process.stderr.write(`\r\u001b[2K${fitLine(line, (process.stderr.columns || 80) - 1)}`);
  if (hasEnded(job)) process.stderr.write("\n");
}

const countHandled = (job: Fields): number =>
  (readNumber(job, "done") ?? 0) + (readNumber(job, "failed") ?? 0);

function showEnd(job: Fields, flags: OutputFlags): void {
  printShown(flags, { value: job, describe: () => describeJob(job) });
  const state = readLine(job, "state");
  const failed = readNumber(job, "failed") ?? 0;
  if (state === "done" && failed === 0) return;
  const why =
    state === "done" ? `${failed} entries could not be handled` : readLine(job, "error") || `it is ${state}`;
  throw new CommandFailed("failed", `job ${readLine(job, "jobId")}: ${why}`);
}

/** Returns the lines that describe a job. */
export function describeJob(job: Fields): string[] {
  const total = readNumber(job, "total");
  return [
    ...formatPairs([
      ["job", readLine(job, "jobId")],
      ["action", readLine(job, "action")],
      ["state", readLine(job, "state")],
      ["done", `${readNumber(job, "done") ?? 0}${total === null ? "" : ` of ${total}`}`],
      ["failed", readLine(job, "failed")],
      ["rate", readLine(job, "rate")],
      ["canary", readLine(job, "canary")],
      ["created", formatTime(job, "createdAt")],
      ["ended", formatTime(job, "endedAt")],
      ["error", readLine(job, "error")],
    ]),
    ...readObjects(job, "failures").map(
      (failure) => `${styled("red", "failed")}  ${readLine(failure, "id")}  ${readLine(failure, "reason")}`,
    ),
    ...readObjects(job, "results").map(
      (result) => `${readLine(result, "id")} became ${readLine(result, "became")}`,
    ),
  ];
}
