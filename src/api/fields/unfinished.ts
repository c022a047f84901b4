import { gateKinds, readWaitlist } from "../../engine/core/admission/gate.ts";
import type { ListedState } from "../../engine/core/explain/listedState.ts";
import { listedStates } from "../../engine/core/explain/listedState.ts";
import type { WaitState } from "../../engine/core/explain/whyWaiting.ts";
import type { StoredMessage } from "../../engine/core/model/message.ts";
import type { MessageState } from "../../engine/core/model/messageState.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { FieldsOf, ShownReason } from "./field.ts";
import { count, optional, reason, status, text, time, word } from "./field.ts";
import { damagedMark, identityFields, sendFields } from "./message.ts";

/** The meanings of the states of a list. */
export const aboutListedStates =
  "pending: waits for its due time, and no attempt has failed. retrying: waits for the due time of its " +
  "next attempt. delivering: is being sent. held: is due and waits at a gate. paused: waits for its " +
  "queue or its flow-control key to be resumed.";
/** The meanings of the gates. */
export const aboutGates =
  "queue: for a slot of its queue. key: for its flow-control key. endpoint, account: for a limit of the " +
  "account, to one endpoint or in all. capacity: for free delivery capacity of the server.";

/** An unfinished message of a list, and the reason why it waits now. */
type Unfinished = {
  message: StoredMessage;
  state: MessageState;
  listedState: ListedState;
  dueAt: Millis | null;
  waitState: WaitState;
  waitingOn: ShownReason | undefined;
};

const { messageId, url, method, topicName, endpointName, queueName, scheduleId } = identityFields;
const { label, labels, callerIP, maxRetries } = sendFields;

/** The fields of an unfinished message, as lists show it: without headers and bodies. */
export const unfinishedFields = {
  messageId,
  state: word(listedStates)(
    `The state of the message. ${aboutListedStates}`,
    ({ listedState }) => listedState,
  ),
  gate: optional(word(gateKinds))(
    `The gate at which the message waits. Absent if it waits at none. ${aboutGates}`,
    ({ state }) => readWaitlist(state)?.kind,
  ),
  ...{ url, method, topicName, endpointName, queueName, scheduleId },
  flowControlKey: optional(text)(
    "The flow-control key of the message.",
    ({ state }) => state.flowControlKey,
    "KEY",
  ),
  workflowRunId: optional(text)(
    "The id of the run that the message belongs to.",
    ({ message }) => message.run?.runId,
  ),
  ...{ label, labels, callerIP },
  size: count("The size of the body, in bytes.", ({ state }) => state.size),
  createdAt: time(
    "When the message was accepted, in Unix milliseconds.",
    ({ message }) => message.createdAt,
    "CREATED",
  ),
  dueAt: optional(time)(
    "When the next attempt is due, in Unix milliseconds. Present for pending and retrying.",
    ({ dueAt }) => dueAt,
  ),
  attempts: count("The number of attempts that have ended.", ({ state }) => state.attempts),
  maxRetries,
  responseStatus: optional(status)(
    "The HTTP status of the response to the last attempt, if there was one.",
    ({ waitState }) => waitState.lastResult?.status,
  ),
  error: optional(text)(
    "Why the last attempt had no response, if it had none.",
    ({ waitState }) => waitState.lastResult?.error,
  ),
  waitingOn: optional(reason)(
    "The reason that applies now. GET /v2/messages/{messageId} has all reasons, and who is ahead.",
    ({ waitingOn }) => waitingOn,
  ),
  damaged: damagedMark(({ message }) => message.damaged),
} satisfies FieldsOf<Unfinished>;
