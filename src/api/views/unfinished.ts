import { z } from "zod";
import { gateKinds, readWaitlist } from "../../engine/core/admission/gate.ts";
import { listedStates } from "../../engine/core/explain/listedState.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { UnfinishedEntry } from "../../engine/store/queries/unfinished.ts";
import { omitMissing, originFields } from "./messages.ts";
import { damaged, identityFields, sendFields } from "./schemas.ts";
import { listShownReasons } from "./waitReasons.ts";
import { waitReasonSchema } from "./waitReasonSchema.ts";

/** Returns an unfinished message as lists show it: without headers and bodies. */
export function unfinishedJson(
  entry: UnfinishedEntry,
  { now, isOnHold }: { now: Millis; isOnHold: boolean },
): Record<string, unknown> {
  const { state, message, listedState, dueAt, waitState } = entry;
  const [waitingOn] = listShownReasons(waitState, now, isOnHold);
  return omitMissing({
    messageId: state.id,
    state: listedState,
    gate: readWaitlist(state)?.kind,
    url: message.url,
    method: message.method,
    ...originFields(message),
    flowControlKey: state.flowControlKey,
    workflowRunId: message.run?.runId,
    label: message.labels[0],
    labels: message.labels.length > 0 ? message.labels : null,
    callerIP: message.callerIp,
    size: state.size,
    createdAt: message.createdAt,
    dueAt,
    attempts: state.attempts,
    maxRetries: message.retries,
    responseStatus: waitState.lastResult?.status,
    error: waitState.lastResult?.error,
    waitingOn,
    damaged: message.damaged,
  });
}

const { messageId, url, topicName, endpointName, queueName, scheduleId, method } = identityFields;
const { maxRetries, callerIP, label, labels } = sendFields;

/** The state in which a list shows a message. */
export const listedStateSchema = z.enum(listedStates, { error: `must be one of ${listedStates.join(", ")}` });
/** The kind of a gate. */
export const gateSchema = z.enum(gateKinds, { error: `must be one of ${gateKinds.join(", ")}` });

/** The meanings of the states, for the API document. */
export const aboutListedStates =
  "pending: waits for its due time, and no attempt has failed. retrying: waits for the due time of its " +
  "next attempt. delivering: is being sent. held: is due and waits at a gate. paused: waits for its " +
  "queue or its key to be resumed.";
/** The meanings of the gates, for the API document. */
export const aboutGates =
  "queue: for a slot of its queue. key: for its flow-control key. endpoint, account: for a limit of the " +
  "account, to one endpoint or in all. capacity: for free delivery capacity of the server.";

/** An unfinished message, as lists show it. */
export const unfinishedSchema = z.object({
  messageId,
  state: listedStateSchema.describe(`The state of the message. ${aboutListedStates}`),
  gate: gateSchema
    .optional()
    .describe(`The gate at which the message waits. Absent if it waits at none. ${aboutGates}`),
  url,
  method,
  topicName,
  endpointName,
  queueName,
  scheduleId,
  flowControlKey: z.string().optional().describe("The flow-control key of the message."),
  workflowRunId: z.string().optional().describe("The id of the run that the message belongs to."),
  label,
  labels,
  callerIP,
  size: z.int().min(0).describe("The size of the body, in bytes."),
  createdAt: z.int().describe("When the message was accepted, in Unix milliseconds."),
  dueAt: z
    .int()
    .optional()
    .describe("When the next attempt is due, in Unix milliseconds. Present for pending and retrying."),
  attempts: z.int().min(0).describe("The number of attempts that have ended."),
  maxRetries,
  responseStatus: z
    .int()
    .min(200)
    .max(999)
    .optional()
    .describe("The HTTP status of the response to the last attempt, if there was one."),
  error: z.string().optional().describe("Why the last attempt had no response, if it had none."),
  waitingOn: waitReasonSchema
    .optional()
    .describe("The reason that applies now. GET /v2/messages/{messageId} has all reasons, and who is ahead."),
  damaged,
});
