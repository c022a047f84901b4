import type { ExpiredRows, Rows } from "../../core/decision/command.ts";
import type { WithoutBody } from "../../core/model/message.ts";

/** The rows of a batch as its commands have left them. */
type CurrentRows = {
  peek<T extends "log" | "keptLog" | "usage" | "timeIndex">(table: T, id: string): Rows[T] | undefined;
  peekWithoutBody<T extends "deadLetters" | "steps">(table: T, id: string): WithoutBody<Rows[T]> | undefined;
  /** Reports whether the batch has not changed a row since it was loaded. */
  isUntouched<T extends "deduplications" | "runs">(table: T, row: Rows[T]): boolean;
};

/** Returns the expired rows that still exist and are still expired, as the batch has left them. */
export function selectStillExpired(found: ExpiredRows, rows: CurrentRows): ExpiredRows {
  const { log, keptLog, deadLetters, deduplications, audit, runs, steps, usage, timeIndex } = found;
  const keepPresent = <T extends "log" | "keptLog" | "usage" | "timeIndex">(
    table: T,
    all: readonly Rows[T][],
  ): Rows[T][] => all.filter(({ id }) => rows.peek(table, id));
  return {
    audit,
    log: keepPresent("log", log),
    keptLog: keepPresent("keptLog", keptLog),
    steps: steps.filter(({ id }) => rows.peekWithoutBody("steps", id)),
    usage: keepPresent("usage", usage),
    timeIndex: keepPresent("timeIndex", timeIndex),
    deadLetters: deadLetters.flatMap(({ id }) => rows.peekWithoutBody("deadLetters", id) ?? []),
    // A row that was used again is not expired.
    deduplications: deduplications.filter((row) => rows.isUntouched("deduplications", row)),
    runs: runs.filter((row) => rows.isUntouched("runs", row)),
  };
}
