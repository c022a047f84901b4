import type { Refusal, Refused } from "../values/errors.ts";
import { toRefusal } from "../values/errors.ts";
import type { DamageableName, Key, ReadableName } from "./command.ts";

type RefusedName = Extract<DamageableName, ReadableName>;

/** The refusals of commands that need a damaged row, with what their callers can do. */
const damagedRefusals: Readonly<Record<RefusedName, (id: string) => Refused>> = {
  deadLetters: (id) => ({
    refused: "invalid",
    message:
      `dlqId: ${id.slice(0, 100)} is damaged in the store and cannot be sent again; ` +
      "restore a backup, or delete it",
  }),
  schedules: (id) => ({
    refused: "invalid",
    message:
      `scheduleId: the schedule ${id} is damaged in the store; ` +
      "create it again with Svc-Schedule-Id, delete it, or restore a backup",
  }),
  urlGroups: (name) => ({
    refused: "invalid",
    message: `the URL group ${name} is damaged in the store, so its endpoints are not known`,
    remedy: { remedy: "repair-group", group: name },
  }),
};

/** Returns the refusal of a command that needs a damaged row, as plain data. */
export const damagedRefused = (table: RefusedName, id: string): Refused => damagedRefusals[table](id);

/** Returns the refusal of a command that needs a damaged row. */
export const damagedRefusal = (table: RefusedName, id: string): Refusal =>
  toRefusal(damagedRefused(table, id));

/** Returns a row that was read. Throws `Refusal` if it is damaged. */
export function requireUndamaged<Row>(table: ReadableName, [, id = ""]: Key, row: Row): Row {
  if (row && isRefused(table) && (row as { damaged?: true }).damaged) throw damagedRefusal(table, id);
  return row;
}

const isRefused = (table: ReadableName): table is RefusedName => table in damagedRefusals;
