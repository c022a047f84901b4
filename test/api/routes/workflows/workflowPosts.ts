import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import type { TestServer, Reply } from "../../testServer.ts";
import { endpoint } from "./workflow.ts";

/** The feature set that the published client sends. */
export const features = "LazyFetch,InitialBody,WF_DetectTrigger,WF_TriggerOnConfig";
/** Headers by name. */
export type Headers = Record<string, string>;

/** Returns the headers with which the published client starts a run. */
export const startHeaders = (runId: string, more: Headers = {}): Headers => ({
  "upstash-workflow-init": "true",
  "upstash-workflow-runid": runId,
  "upstash-workflow-url": endpoint,
  "upstash-feature-set": features,
  "upstash-workflow-sdk-version": "1",
  "upstash-forward-upstash-workflow-sdk-version": "1",
  "upstash-telemetry-sdk": "x",
  "content-type": "application/json",
  "upstash-method": "POST",
  ...more,
});
/** Returns the headers with which the published client posts a step. */
export const stepHeaders = (runId: string, more: Headers = {}): Headers =>
  startHeaders(runId, { "upstash-workflow-init": "false", ...more });
/** Returns the headers with which the published client calls a third party. */
export const callHeaders = (runId: string, more: Headers = {}): Headers => ({
  "upstash-workflow-init": "false",
  "upstash-workflow-runid": runId,
  "upstash-workflow-url": endpoint,
  "upstash-workflow-sdk-version": "1",
  "upstash-feature-set": "WF_NoDelete,InitialBody",
  "upstash-workflow-calltype": "toCallback",
  "upstash-method": "GET",
  "upstash-retries": "0",
  "upstash-callback": endpoint,
  "upstash-callback-workflow-runid": runId,
  "upstash-callback-workflow-calltype": "fromCallback",
  "upstash-callback-workflow-init": "false",
  "upstash-callback-workflow-url": endpoint,
  "upstash-callback-feature-set": features,
  "upstash-callback-forward-upstash-workflow-callback": "true",
  "upstash-callback-forward-upstash-workflow-stepid": "1",
  "upstash-callback-forward-upstash-workflow-stepname": "get",
  "upstash-callback-forward-upstash-workflow-steptype": "Call",
  "upstash-callback-forward-upstash-workflow-concurrent": "1",
  ...more,
});

/** An item of a batch. The default destination is `endpoint`. */
export type Item = { destination?: string; headers: Headers; body?: string; queue?: string };
/** Sends a batch. */
export const sendBatch = ({ ask }: TestServer, items: readonly Item[], token?: string): Promise<Reply> =>
  ask("POST", "/v2/batch", {
    body: JSON.stringify(items.map((item) => ({ destination: endpoint, ...item }))),
    ...(token === undefined ? {} : { token }),
  });
/** Returns the body of a step with its result. */
export const step = (more: Record<string, unknown> = {}): string =>
  JSON.stringify({ stepId: 1, stepName: "s", stepType: "Run", out: "1", concurrent: 1, ...more });
/** Starts a run by a batch of one item. */
export const start = (testServer: TestServer, runId: string, headers: Headers = {}): Promise<Reply> =>
  sendBatch(testServer, [{ headers: startHeaders(runId, headers), body: "payload" }]);
/** Returns the history of an active run, or an empty list. */
export const readHistory = async (testServer: TestServer, runId: string) => {
  const active = await testServer.store.read.activeRun("acc_1", runId);
  return active ? testServer.store.read.history("acc_1", active.run.id) : [];
};
/** Returns the headers of a delivery by name. */
export const toHeaders = ({ message }: Delivery): Headers => Object.fromEntries(message.headers);
