import type { FieldsOf } from "../../api/fields/field.ts";
import { count, flag, longText, nullable, optional, text, time, word } from "../../api/fields/field.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { OutboxSetting, OutboxState } from "./outbox.ts";
import { leaseTime } from "./outbox.ts";

/** An outbox with its state now. */
export type ShownOutbox = { setting: OutboxSetting; state: OutboxState; now: Millis };

/** Returns the node that takes the rows, or null. */
const readNode = ({ state: { lease }, now }: ShownOutbox): string | null =>
  lease && lease.until > now - leaseTime ? lease.node : null;

/** The fields of an outbox. The URL of the database is never shown. */
export const outboxFields = {
  name: text("The name of the outbox.", ({ setting }) => setting.name, "OUTBOX"),
  schema: text("The schema in the database.", ({ setting }) => setting.schema),
  tokenId: nullable(text)(
    "The id of the token whose rights apply to every row. null: the token of the account itself.",
    ({ setting }) => setting.tokenId,
  ),
  pooled: flag(
    "Whether connections lead to a pooler in transaction mode.",
    ({ setting }) => setting.isPooled,
  ),
  createdAt: time("When the outbox was added, in Unix milliseconds.", ({ setting }) => setting.createdAt),
  state: word(["running", "failing", "stopped"])(
    "running: a node takes the rows. failing: rows wait; error says why. stopped: no node takes rows now, " +
      "for example because all deliveries are on hold.",
    (shown) => (shown.state.error !== null ? "failing" : readNode(shown) === null ? "stopped" : "running"),
  ),
  node: optional(text)("The node that takes the rows.", readNode),
  taken: count("The number of rows that became messages.", ({ state }) => state.taken),
  takenAt: optional(time)(
    "When a row last became a message, in Unix milliseconds.",
    ({ state }) => state.takenAt,
    "LAST ROW",
  ),
  waiting: count(
    "The number of rows that wait, counted every few seconds, up to 10,000.",
    ({ state }) => state.waiting,
  ),
  oldestAt: optional(time)(
    "When the oldest row that waits was inserted, in Unix milliseconds.",
    ({ state }) => state.oldestAt,
    "OLDEST",
  ),
  rejected: count("The number of rejected rows, up to 10,000.", ({ state }) => state.rejected),
  rejectedAt: optional(time)(
    "When the newest rejected row was rejected, in Unix milliseconds.",
    ({ state }) => state.rejectedAt,
  ),
  reason: optional(longText)("Why the newest rejected row was rejected.", ({ state }) => state.reason),
  error: optional(longText)("Why rows wait. It has nothing of the URL.", ({ state }) => state.error),
  errorAt: optional(time)("Since when rows wait, in Unix milliseconds.", ({ state }) => state.errorAt),
} satisfies FieldsOf<ShownOutbox>;
