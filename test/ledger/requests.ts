/** The requests and responses of the loads, as bytes. */

type Request = { path: string; headers?: readonly string[]; token: string; body: string };

/** Returns a POST request. */
export const formatRequest = ({ path, headers = [], token, body }: Request): string =>
  [
    `POST ${path} HTTP/1.1`,
    "Host: 127.0.0.1",
    `Authorization: Bearer ${token}`,
    "Content-Type: application/json",
    ...headers,
    `Content-Length: ${Buffer.byteLength(body)}`,
    "",
    body,
  ].join("\r\n");

/** The response of a destination. */
export const okResponse = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/** The response of a workflow endpoint that has posted its step. */
export const stepResponse =
  "HTTP/1.1 200 OK\r\nUpstash-Workflow-Sdk-Version: 1\r\nContent-Type: application/json\r\n" +
  "Content-Length: 2\r\n\r\n{}";

const postHeaders = (url: string, runId: string, isStart: boolean): Record<string, string> => ({
  "upstash-workflow-init": String(isStart),
  "upstash-workflow-runid": runId,
  "upstash-workflow-url": url,
  "upstash-feature-set": "LazyFetch,InitialBody,WF_DetectTrigger,WF_TriggerOnConfig",
  "upstash-workflow-sdk-version": "1",
  "upstash-forward-upstash-workflow-sdk-version": "1",
  "content-type": "application/json",
  "upstash-method": "POST",
});

/** Returns the item of a batch that starts a run. */
export const startItem = (url: string, runId: string): object => ({
  destination: url,
  headers: postHeaders(url, runId, true),
  body: '{"order":1}',
});

/** Returns the item of a batch that posts the result of a step. */
export const stepItem = (url: string, runId: string, step: number): object => ({
  destination: url,
  headers: postHeaders(url, runId, false),
  body: JSON.stringify({
    stepId: step,
    stepName: `step ${step}`,
    stepType: "Run",
    out: JSON.stringify("resulted"),
    concurrent: 1,
  }),
});
