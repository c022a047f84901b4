import { parseGate } from "../../engine/core/admission/gate.ts";
import type { Limiter } from "../../engine/core/model/limiter.ts";
import type { FieldsOf } from "./field.ts";
import { count, flag, optional, text, time } from "./field.ts";
import { formatDuration } from "../../engine/core/values/duration.ts";

/** The fields of a queue. */
export const queueFields = {
  name: text("Name of the queue.", ({ id }) => parseGate(id).name, "QUEUE"),
  createdAt: time("Time of creation, in Unix milliseconds.", ({ createdAt }) => createdAt),
  updatedAt: time(
    "Time of the last change of its settings, in Unix milliseconds.",
    ({ updatedAt }) => updatedAt,
    "CHANGED",
  ),
  parallelism: count(
    "Maximum number of messages that hold a slot of the queue at once.",
    ({ parallelism }) => parallelism ?? 0,
  ),
  paused: flag("Whether the queue is paused, so that it sends no messages.", ({ paused }) => paused),
  ackTimeout: optional(text)(
    "How long receivers may hold an attempt of a message that sets no Ack-Timeout, such as 2h.",
    ({ ackTimeout }) => (ackTimeout === undefined ? null : formatDuration(ackTimeout)),
  ),
  lag: count(
    "Number of messages in the queue: those that wait for a slot, and those that hold one. " +
      "A message holds its slot while it is being sent, waits for a retry, or has unfinished callbacks. " +
      "A cancelled message counts until its request has ended. A delayed message counts as soon as it is " +
      "due.",
    ({ waiting, running }) => waiting + running,
    "WAITING",
  ),
} satisfies FieldsOf<Limiter>;
