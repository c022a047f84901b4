import { truncateJson } from "./truncateJson.ts";
import type { DestinationResponse } from "../model/attempt.ts";
import type { Bytes, HeaderList } from "../values/basics.ts";
import type { CallbackSettings } from "../model/sendSettings.ts";
import type { StoredMessage, MessageInput, CallbackSubject } from "../model/message.ts";
import { noMessageSettings } from "../model/message.ts";
import { base64 } from "../values/base64.ts";

/** `maxBytes` is the largest size of the body. */
type CallbackContent = {
  callback: CallbackSettings;
  message: StoredMessage;
  retried: number;
  outcome: DestinationResponse;
  reportsOn: CallbackSubject;
  maxBytes: number;
};

/**
 * Returns the message that reports the outcome of another message. It is an ordinary message, with its own
 * retries and its own dead letter.
 */
export function makeCallbackInput({
  callback,
  message,
  retried,
  outcome,
  reportsOn,
  maxBytes,
}: CallbackContent): Omit<MessageInput, "post"> {
  const { url, delay = null, labels = [], ...settings } = callback;
  return {
    ...noMessageSettings,
    ...settings,
    url,
    delay,
    labels,
    brand: message.brand,
    retries: settings.retries ?? message.retries,
    headers: settings.headers.some(([name]) => name === "Content-Type")
      ? settings.headers
      : [["Content-Type", "application/json"], ...settings.headers],
    body: new TextEncoder().encode(
      formatCallbackBody({ message, retried, outcome, dlqId: reportsOn.dlqId, maxBytes }),
    ),
    // The body reports the headers and the body of the original. If the original hides any of them, the whole
    // body of the callback is hidden. The headers of the callback are hidden as in the original, because the
    // original shows them too.
    redaction: message.redaction && { ...message.redaction, body: true },
    callerIp: message.callerIp,
    reportsOn,
    ...(message.trace === undefined ? {} : { trace: message.trace }),
  };
}

/**
 * The status that a callback reports if there was no response. Applications take statuses from 400 and this
 * one for failures, and any other status for a delivery.
 */
export const noResponseStatus = -1;

/**
 * Returns the body of a callback, at most `maxBytes` bytes. If the destination gave no
 * response, `status` is `noResponseStatus` and `body` is the reason. `retried` is 0 after the first attempt.
 * `truncated` is true if not everything fits, or if the response was not read completely.
 */
function formatCallbackBody({
  message,
  retried,
  outcome,
  dlqId,
  maxBytes,
}: Omit<CallbackContent, "callback" | "reportsOn"> & { dlqId: string | null }): string {
  const response = outcome.status === null ? new TextEncoder().encode(outcome.error ?? "") : outcome.body;
  const fields = {
    status: outcome.status ?? noResponseStatus,
    header: headerMap(outcome.headers),
    body: "",
    retried,
    maxRetries: message.retries,
    sourceMessageId: message.id,
    ...(message.group === null ? {} : { topicName: message.group }),
    ...(message.endpoint === null ? {} : { endpointName: message.endpoint }),
    url: message.url,
    method: message.method,
    sourceHeader: headerMap(message.headers),
    sourceBody: "",
    notBefore: message.notBefore,
    createdAt: message.createdAt,
    ...(message.scheduleId === null ? {} : { scheduleId: message.scheduleId }),
    ...(message.callerIp === null ? {} : { callerIP: message.callerIp }),
    ...(dlqId === null ? {} : { dlqId }),
    ...(message.run === undefined
      ? {}
      : { workflowRunId: message.run.runId, workflowCreatedAt: message.run.createdAt }),
    ...(outcome.cut ? { truncated: true } : {}),
  };
  const room = maxBytes - jsonSize(fields);
  if (base64Length(response.byteLength) + base64Length(message.body.byteLength) <= room) {
    // Closing a partly read JSON response may need additional bytes.
    const responseBytes = Math.min(
      decodedLength(room - base64Length(message.body.byteLength)),
      2 * response.byteLength,
    );
    const responseBody = outcome.cut ? truncateJson(response, responseBytes) : response;
    return JSON.stringify({ ...fields, body: base64(responseBody), sourceBody: base64(message.body) });
  }
  return JSON.stringify(
    cutToFit({ ...fields, truncated: true }, { maxBytes, response, source: message.body }),
  );
}

type Fields = {
  header: Record<string, string[]>;
  sourceHeader: Record<string, string[]>;
  body: string;
  sourceBody: string;
};

/**
 * Cuts both bodies so that the JSON has at most `maxBytes` bytes. Each body may use half of the remaining
 * bytes, and the bytes that the other body does not need. Headers are removed only if the JSON would be too
 * large even with empty bodies.
 */
function cutToFit<F extends Fields>(
  fields: F,
  { maxBytes, response, source }: { maxBytes: number; response: Bytes; source: Bytes },
): F {
  let left = fields;
  if (jsonSize(left) > maxBytes) left = { ...left, header: {} };
  if (jsonSize(left) > maxBytes) left = { ...left, sourceHeader: {} };
  const room = Math.max(0, maxBytes - jsonSize(left));
  const responseBytes = Math.max(Math.floor(room / 2), room - base64Length(source.byteLength));
  const body = base64(
    decodedLength(responseBytes) < response.byteLength
      ? truncateJson(response, decodedLength(responseBytes))
      : response,
  );
  const sourceBody = base64(source.subarray(0, decodedLength(room - body.length)));
  return { ...left, body, sourceBody };
}

const jsonSize = (value: unknown): number => Buffer.byteLength(JSON.stringify(value));
/**
 * The first function returns the number of base64 characters for a number of bytes. The second returns the
 * number of bytes that fit into a number of characters.
 */
const base64Length = (bytes: number): number => Math.ceil(bytes / 3) * 4;
const decodedLength = (characters: number): number => Math.floor(characters / 4) * 3;

/** Returns headers as a map from each name to the list of its values, as all JSON of the API shows them. */
export function headerMap(headers: HeaderList): Record<string, string[]> {
  const map: Record<string, string[]> = {};
  Object.setPrototypeOf(map, null);
  for (const [name, value] of headers) (map[name] ??= []).push(value);
  return map;
}
