import type { Millis } from "../../engine/core/values/basics.ts";
import { OutboxFailure } from "./failure.ts";
import type { OutboxStatus } from "./outbox.ts";
import { maxCounted } from "./outbox.ts";
import type { OutboxRow } from "./rows.ts";
import { maxDestination, roundRows } from "./statements.ts";

// The answers of a database are checked like the input of a request: its owner may have chosen any database.

type Unknown<Row> = { readonly [Name in keyof Row]: unknown };

const uuidPattern = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/;
/** The maximum number of characters of a reason. The relay writes no longer ones. */
const maxReason = 1_000;

const assertAnswer: (isValid: boolean, name: string) => asserts isValid = (isValid, name) => {
  if (!isValid) throw new OutboxFailure(`the database answers with a wrong value of ${name}`);
};

const isMembers = (value: unknown): boolean =>
  value === null || (typeof value === "object" && !Array.isArray(value) && !Buffer.isBuffer(value));

/** Checks the rows of a round. Throws `OutboxFailure`. */
export function checkRows(rows: readonly Unknown<OutboxRow>[], maxBody: number): OutboxRow[] {
  assertAnswer(rows.length <= roundRows, "the number of rows");
  return rows.map((row) => checkRow(row, maxBody));
}

function checkRow(row: Unknown<OutboxRow>, maxBody: number): OutboxRow {
  const { id, key, is_workflow, destination, body, size, settings, headers } = row;
  assertAnswer(typeof id === "string" && /^\d{1,19}$/.test(id), "id");
  const isText = typeof destination === "string" && destination.length <= 2 * maxDestination;
  assertAnswer(isText, "destination");
  assertAnswer(typeof is_workflow === "boolean", "is_workflow");
  assertAnswer(body === null || (Buffer.isBuffer(body) && body.length <= maxBody), "body");
  assertAnswer(isCount(size, 2 ** 31), "size");
  assertAnswer(isMembers(settings), "settings");
  assertAnswer(isMembers(headers), "headers");
  return {
    ...{ id, key: checkKey(key), is_workflow, destination, body, size },
    settings: settings as OutboxRow["settings"],
    headers: headers as OutboxRow["headers"],
  };
}

/** Returns the key of a row. Throws `OutboxFailure`. */
export function checkKey(key: unknown): string {
  assertAnswer(typeof key === "string" && uuidPattern.test(key), "key");
  return key;
}

const isCount = (value: unknown, max: number): value is number =>
  Number.isInteger(value) && Number(value) >= 0 && Number(value) <= max;

/** The row that `readCounts` returns. */
type RowCounts = {
  waiting: number;
  rejected: number;
  lag: number | null;
  reason: string | null;
  rejected_lag: number | null;
  owner: string | null;
};

/** Returns the state of the rows, and the owner of the outbox. Throws `OutboxFailure`. */
export function checkCounts(counts: Unknown<RowCounts> | undefined, now: Millis) {
  const { waiting, rejected, lag, reason, rejected_lag: rejectedLag, owner } = counts ?? {};
  assertAnswer(isCount(waiting, maxCounted), "waiting");
  assertAnswer(isCount(rejected, maxCounted), "rejected");
  assertAnswer(reason === null || typeof reason === "string", "reason");
  const status = {
    ...{ waiting, rejected, reason: reason?.slice(0, maxReason) ?? null },
    oldestAt: toTime(lag, now),
    rejectedAt: toTime(rejectedLag, now),
  } satisfies Partial<OutboxStatus>;
  return { owner, status };
}

/** Returns when something was that is so old. It was not before 1970, and is not in the future. */
function toTime(age: unknown, now: Millis): Millis | null {
  if (age === null) return null;
  assertAnswer(typeof age === "number" && Number.isFinite(age), "an age");
  return Math.min(now, Math.max(0, Math.round(now - age)));
}
