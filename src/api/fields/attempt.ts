import type { LoggedAttempt, LogRow } from "../../engine/core/model/logRow.ts";
import type { StoredMessage } from "../../engine/core/model/message.ts";
import { isSettledByStep } from "../../engine/core/sending/recordOutcome.ts";
import { explainFailure } from "./explainFailure.ts";
import { isCut, readBase64, readHeaders, readText } from "./content.ts";
import type { Field, FieldsOf } from "./field.ts";
import { headers, integer, mark, object, optional, status, text, time, word } from "./field.ts";

const timeFields: FieldsOf<LoggedAttempt> = {
  startedAt: time("When the attempt began, in Unix milliseconds.", ({ startedAt }) => startedAt),
  connect: optional(integer)(
    "The time until a connection was ready, in milliseconds. Near 0 if an open connection was used. " +
      "Absent if no connection was ready.",
    ({ connect }) => connect,
  ),
  lookup: optional(integer)(
    "The time of the lookup of the name, in milliseconds. Like tcp and tls, it is only present for an " +
      "attempt that opened its connection, and that failed or took longer than 1 second. With a forward " +
      "proxy, lookup and tcp are those of the proxy.",
    ({ opening }) => opening?.lookup,
  ),
  tcp: optional(integer)(
    "The time until the TCP connection was open, after the lookup, in milliseconds.",
    ({ opening }) => opening?.tcp,
  ),
  tls: optional(integer)(
    "The time of the TLS handshake, in milliseconds. Absent for plain HTTP.",
    ({ opening }) => opening?.tls,
  ),
  firstByte: optional(integer)(
    "The time from the request until the response began, in milliseconds. Absent if it did not begin.",
    ({ firstByte }) => firstByte,
  ),
  duration: integer("The time of the whole attempt, in milliseconds.", ({ duration }) => duration),
  node: text("The id of the node that made the attempt.", ({ node }) => node),
};

/** Makes the field with the times of an attempt, and its node. */
export const attemptField = <Row>(read: (row: Row) => LoggedAttempt | null | undefined): Field<Row> =>
  optional(object(timeFields))(
    "The times of the attempt. Absent if the request was never attempted, or if the receiver reported its " +
      "outcome.",
    read,
  );

/**
 * Returns the error of an attempt; null if it had none. The log has the times of a response, and none of a
 * report.
 */
export const readError = ({ error, status: code, attempt }: LogRow): string | null => {
  if (error !== null || code === null) return error;
  return attempt ? `the destination answered with status ${code}` : `the receiver reported status ${code}`;
};

/** Makes the field with the meaning of a failure. */
export const explanationField = <Row>(read: (row: Row) => string | null | undefined): Field<Row> =>
  optional(text)("The meaning of the failure, and how to fix its cause. Present for known failures.", read);

/** Makes the field with the reason why a delivery was settled before it had a response. */
export const settledByField = <Row>(read: (row: Row) => boolean): Field<Row> =>
  optional(word(["step"]))(
    "Present for DELIVERED if the endpoint posted the next step of its run, or the end of the run, before " +
      "it responded. The response is then not recorded.",
    (row) => (read(row) ? "step" : null),
  );

/** Returns the meaning of a failure, and how to fix its cause. */
export const readExplanation = (
  row: Pick<LogRow, "status" | "headers" | "body" | "error">,
  { redaction, run }: Pick<StoredMessage, "redaction" | "run">,
): string | null | undefined =>
  explainFailure(row, { redaction, ofRun: run !== undefined && run.kind !== "call" });

/** The fields of the outcome of an attempt, in the view of its message. */
export const outcomeFields: FieldsOf<{ row: LogRow; message: StoredMessage }> = {
  time: time("When the outcome was recorded, in Unix milliseconds.", ({ row }) => row.time),
  responseStatus: optional(status)(
    "The HTTP status of the response. Absent if there was none.",
    ({ row }) => row.status,
  ),
  responseHeader: optional(headers)(
    "Headers of the response: names to lists of values.",
    ({ row, message }) =>
      // The headers of a success are known only if the log keeps the response.
      row.status === null || (row.states.includes("DELIVERED") && message.keepResponse !== true)
        ? null
        : readHeaders(row.headers, message.redaction),
  ),
  responseBody: optional(text)(
    "The body of the response, cut to 16 KiB, if it is UTF-8.",
    ({ row, message }) => readText(row.body, message.redaction, row.digest),
  ),
  responseBodyBase64: optional(text)(
    "The body of the response in base64, cut to 16 KiB, if it is not UTF-8.",
    ({ row, message }) => readBase64(row.body, message.redaction),
  ),
  truncated: mark("The response is cut.", ({ row, message }) => isCut(row, message.redaction)),
  settledBy: settledByField(({ row }) => isSettledByStep(row)),
  error: optional(text)("Why there was no response.", ({ row }) => row.error),
  explanation: explanationField(({ row, message }) => readExplanation(row, message)),
  attempt: attemptField(({ row }) => row.attempt),
};
