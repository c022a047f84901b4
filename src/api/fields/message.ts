import type { StoredMessage } from "../../engine/core/model/message.ts";
import type { FlowControl } from "../../engine/core/model/sendSettings.ts";
import { defaults } from "../../engine/core/values/limits.ts";
import { readBase64, readHeaders, readText } from "./content.ts";
import type { Field, FieldsOf } from "./field.ts";
import {
  count,
  headers,
  longText,
  mark,
  number,
  object,
  omitEmpty,
  optional,
  positive,
  text,
  texts,
  time,
} from "./field.ts";

/** A message, and perhaps its state, its dead letter or an event. */
type OfMessage = { message: StoredMessage };

/** The fields that identify a message and its destination. */
export const identityFields = {
  messageId: text("The id of the message.", ({ message }) => message.id, "MESSAGE"),
  url: longText("The destination URL.", ({ message }) => message.url),
  topicName: optional(text)(
    "The URL group that the message was published to.",
    ({ message }) => message.group,
  ),
  endpointName: optional(text)(
    "The name of the endpoint in the URL group.",
    ({ message }) => message.endpoint,
  ),
  queueName: optional(text)(
    "The name of the queue that the message goes through.",
    ({ message }) => message.queue,
    "QUEUE",
  ),
  scheduleId: optional(text)(
    "The id of the schedule that published the message.",
    ({ message }) => message.scheduleId,
  ),
  method: text("The HTTP method of the delivery.", ({ message }) => message.method),
  header: headers("Headers of the delivery: names to lists of values.", ({ message }) =>
    readHeaders(message.headers, message.redaction),
  ),
} satisfies FieldsOf<OfMessage>;

/** The settings of a message that lists show. */
export const sendFields = {
  maxRetries: count("The maximum number of retries of the message.", ({ message }) => message.retries),
  retryDelayExpression: optional(text)(
    "The expression for the time between two attempts, in milliseconds, if one was set.",
    ({ message }) => message.retryDelay,
  ),
  hideHeaders: mark(
    "The message is delivered without the headers of this server. Absent if it has them.",
    ({ message }) => message.hideHeaders,
  ),
  callback: optional(text)("The URL of the callback.", ({ message }) => message.callback?.url),
  failureCallback: optional(text)(
    "The URL of the failure callback.",
    ({ message }) => message.failureCallback?.url,
  ),
  callerIP: optional(text)(
    "The IP address of the client that published the message, if it is known.",
    ({ message }) => message.callerIp,
  ),
  label: optional(text)("The first label of the message.", ({ message }) => message.labels[0]),
  labels: optional(texts)("All labels of the message.", ({ message }) => omitEmpty(message.labels)),
} satisfies FieldsOf<OfMessage>;

/** Makes the field that marks a row whose stored content is damaged. */
export const damagedMark = <Row>(read: (row: Row) => boolean | undefined): Field<Row> =>
  mark("The stored content is damaged, so it is omitted. Absent if it is intact.", read);

const replayFields: FieldsOf<NonNullable<StoredMessage["replayOf"]>> = {
  messageId: text("The id of the message that failed.", ({ messageId }) => messageId),
  dlqId: text("The id of its dead letter.", ({ dlqId }) => dlqId),
};

const { callerIP, label, labels, callback, failureCallback, ...retryFields } = sendFields;

/** The fields of a message. The limits are those that it was published with, not those of its key now. */
export const messageFields = {
  ...identityFields,
  body: optional(text)("The body, if it is UTF-8. Absent if it is empty.", ({ message }) =>
    readText(message.body, message.redaction),
  ),
  bodyBase64: optional(text)("The body in base64, if it is not UTF-8.", ({ message }) =>
    readBase64(message.body, message.redaction),
  ),
  ...retryFields,
  notBefore: time(
    "The earliest time of the first attempt, in Unix milliseconds.",
    ({ message }) => message.notBefore,
  ),
  createdAt: time(
    "When the message was accepted, in Unix milliseconds.",
    ({ message }) => message.createdAt,
    "PUBLISHED",
  ),
  ...{ callback, failureCallback, callerIP, label, labels },
  flowControlKey: optional(text)(
    "The flow-control key of the message.",
    ({ message }) => message.flowControl?.key,
  ),
  parallelism: optional(positive)(
    "The maximum number of deliveries of the flow-control key in flight at once, as the message set it.",
    ({ message }) => message.flowControl?.parallelism,
  ),
  rate: optional(positive)(
    "The maximum number of deliveries of the flow-control key that start in one period, " +
      "as the message set it.",
    ({ message }) => message.flowControl?.rate,
  ),
  period: optional(number)("The period of the rate, in seconds.", ({ message }) =>
    readPeriod(message.flowControl),
  ),
  replayOf: optional(object(replayFields))(
    "The failed message that this message sends again with changes. Absent if it is not a replay.",
    ({ message }) => message.replayOf,
  ),
  damaged: damagedMark(({ message }) => message.damaged),
} satisfies FieldsOf<OfMessage>;

/** Returns the period of a flow-control key, in seconds. */
export const readPeriod = (flowControl: FlowControl | null): number | null =>
  flowControl && (flowControl.period ?? defaults.period) / 1000;
