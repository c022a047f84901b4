import type { Answer, CallbackSettings, Envelope, HeaderList, Letter, Tells } from "./message.ts";

type Told = { to: CallbackSettings; envelope: Envelope; retried: number; outcome: Answer; tells: Tells };

/** The message that tells what came of another one: an ordinary message, with retries and a dead letter of its own. */
export function callbackLetter({ to, envelope, retried, outcome, tells }: Told): Omit<Letter, "post"> {
  const { url, delay = null, labels = [], ...settings } = to;
  return {
    ...settings,
    ...{ url, delay, labels },
    brand: envelope.brand,
    retries: settings.retries ?? envelope.retries,
    headers: settings.headers.some(([name]) => name === "Content-Type")
      ? settings.headers
      : [["Content-Type", "application/json"], ...settings.headers],
    body: new TextEncoder().encode(JSON.stringify(callbackBody({ envelope, retried, outcome, dlqId: tells.dlqId }))),
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
 * The body of a callback (protocol 4.3). `status` is 0 and `body` the reason where the destination gave no answer.
 * `retried` is 0 after the first attempt; times are texts, as clients know them.
 */
function callbackBody({ envelope, retried, outcome, dlqId }: Omit<Told, "to" | "tells"> & { dlqId: string | null }) {
  return {
    status: outcome.status ?? 0,
    header: headerMap(outcome.headers),
    body: base64(outcome.status === null ? new TextEncoder().encode(outcome.error ?? "") : outcome.body),
    retried,
    maxRetries: envelope.retries,
    sourceMessageId: envelope.id,
    ...(envelope.group === null ? {} : { topicName: envelope.group }),
    ...(envelope.endpoint === null ? {} : { endpointName: envelope.endpoint }),
    url: envelope.url,
    method: envelope.method,
    sourceHeader: headerMap(envelope.headers),
    sourceBody: base64(envelope.body),
    notBefore: String(envelope.notBefore),
    createdAt: String(envelope.createdAt),
    ...(envelope.scheduleId === null ? {} : { scheduleId: envelope.scheduleId }),
    ...(envelope.callerIp === null ? {} : { callerIP: envelope.callerIp }),
    ...(dlqId === null ? {} : { dlqId }),
    ...(envelope.run === undefined ? {} : { workflowRunId: envelope.run.runId, workflowCreatedAt: envelope.run.createdAt }),
  };
}

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");

/** Header names to the list of their values, as every JSON of the interface shows headers. */
export function headerMap(headers: HeaderList): Record<string, string[]> {
  const map: Record<string, string[]> = {};
  Object.setPrototypeOf(map, null);
  for (const [name, value] of headers) (map[name] ??= []).push(value);
  return map;
}
