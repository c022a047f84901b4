import { cutJson } from "../values/cutJson.ts";
import type { Answer, Bytes, CallbackSettings, Envelope, HeaderList, Letter, Tells } from "../model/message.ts";
import { base64 } from "../values/base64.ts";

/** `most`: bytes that the body may have at most. */
type Told = { to: CallbackSettings; envelope: Envelope; retried: number; outcome: Answer; tells: Tells; most: number };

/** The message that tells what came of another one: an ordinary message, with retries and a dead letter of its own. */
export function callbackLetter({ to, envelope, retried, outcome, tells, most }: Told): Omit<Letter, "post"> {
  const { url, delay = null, labels = [], ...settings } = to;
  return {
    ...settings,
    ...{ url, delay, labels },
    brand: envelope.brand,
    retries: settings.retries ?? envelope.retries,
    headers: settings.headers.some(([name]) => name === "Content-Type")
      ? settings.headers
      : [["Content-Type", "application/json"], ...settings.headers],
    body: new TextEncoder().encode(callbackBody({ envelope, retried, outcome, dlqId: tells.dlqId, most })),
    notBefore: null,
    deduplication: null,
    ...{ group: null, endpoint: null, queue: null, scheduleId: null },
    // The body tells of the original's headers and body, so whatever is hidden there is hidden here with all of it. The headers
    // of the callback are shown with the original, too, where it hides them.
    redaction: envelope.redaction && { ...envelope.redaction, body: true },
    callerIp: envelope.callerIp,
    tells,
  };
}

/**
 * The body of a callback (protocol 4.3), at most `most` bytes. `status` is 0 and `body` the reason if the destination gave no response.
 * `retried` is 0 after the first attempt; times are texts, as clients know them. If not everything fits, or not all of the response was
 * read, `truncated` is true.
 */
function callbackBody({ envelope, retried, outcome, dlqId, most }: Omit<Told, "to" | "tells"> & { dlqId: string | null }): string {
  const answer = outcome.status === null ? new TextEncoder().encode(outcome.error ?? "") : outcome.body;
  const fields = {
    status: outcome.status ?? 0,
    header: headerMap(outcome.headers),
    body: "",
    retried,
    maxRetries: envelope.retries,
    sourceMessageId: envelope.id,
    ...(envelope.group === null ? {} : { topicName: envelope.group }),
    ...(envelope.endpoint === null ? {} : { endpointName: envelope.endpoint }),
    url: envelope.url,
    method: envelope.method,
    sourceHeader: headerMap(envelope.headers),
    sourceBody: "",
    notBefore: String(envelope.notBefore),
    createdAt: String(envelope.createdAt),
    ...(envelope.scheduleId === null ? {} : { scheduleId: envelope.scheduleId }),
    ...(envelope.callerIp === null ? {} : { callerIP: envelope.callerIp }),
    ...(dlqId === null ? {} : { dlqId }),
    ...(envelope.run === undefined ? {} : { workflowRunId: envelope.run.runId, workflowCreatedAt: envelope.run.createdAt }),
    ...(outcome.cut ? { truncated: true } : {}),
  };
  const room = most - sizeOf(fields);
  if (inBase64(answer.byteLength) + inBase64(envelope.body.byteLength) <= room) {
    // There may be room to close what was read in part.
    const ofAnswer = Math.min(bytesIn(room - inBase64(envelope.body.byteLength)), 2 * answer.byteLength);
    const whole = outcome.cut ? cutJson(answer, ofAnswer) : answer;
    return JSON.stringify({ ...fields, body: base64(whole), sourceBody: base64(envelope.body) });
  }
  return JSON.stringify(cutToFit({ ...fields, truncated: true }, { most, answer, source: envelope.body }));
}

type Fields = { header: Record<string, string[]>; sourceHeader: Record<string, string[]>; body: string; sourceBody: string };

/**
 * Cuts both bodies so that all of it has at most `most` bytes. Each may have half of the room, and what the other leaves. Headers go only if
 * there is no room at all without them.
 */
function cutToFit<F extends Fields>(fields: F, { most, answer, source }: { most: number; answer: Bytes; source: Bytes }): F {
  let left = fields;
  if (sizeOf(left) > most) left = { ...left, header: {} };
  if (sizeOf(left) > most) left = { ...left, sourceHeader: {} };
  const room = Math.max(0, most - sizeOf(left));
  const ofAnswer = Math.max(Math.floor(room / 2), room - inBase64(source.byteLength));
  const body = base64(bytesIn(ofAnswer) < answer.byteLength ? cutJson(answer, bytesIn(ofAnswer)) : answer);
  const sourceBody = base64(source.subarray(0, bytesIn(room - body.length)));
  return { ...left, body, sourceBody };
}

const sizeOf = (value: unknown): number => Buffer.byteLength(JSON.stringify(value));
/** Characters that a number of bytes takes in base64, and bytes that fit into a number of characters. */
const inBase64 = (bytes: number): number => Math.ceil(bytes / 3) * 4;
const bytesIn = (characters: number): number => Math.floor(characters / 4) * 3;

/** Header names to the list of their values, as every JSON of the interface shows headers. */
export function headerMap(headers: HeaderList): Record<string, string[]> {
  const map: Record<string, string[]> = {};
  Object.setPrototypeOf(map, null);
  for (const [name, value] of headers) (map[name] ??= []).push(value);
  return map;
}
