import { expect } from "vitest";
import { z } from "zod";
import type { Row } from "./exchange.ts";
import { pythonJson } from "./dialects.ts";
import { flowControl, group, message, queue, sent, sentInBatch, sentToGroup, whole } from "./pythonReads.ts";

/** The content type of calls with JSON. */
export const json = { "Content-Type": "application/json" };

/** Remembers the id of a published message as `message`. */
export const keepMessage = ({ messageId }: { messageId: string }) => ({ message: messageId });

const publishing: Row[] = [
  {
    call: "message.publish with every setting",
    send: "POST /v2/publish/https://example.com/later?a=1",
    headers: {
      "Content-Type": "text/plain",
      "Upstash-Method": "PUT",
      "Upstash-Forward-test-header": "test-value",
      "Upstash-Callback-test-header": "c",
      "Upstash-Failure-Callback-test-header": "f",
      "Upstash-Retries": "2",
      "Upstash-Retry-Delay": "1000 * (1 + retried)",
      "Upstash-Callback": "https://example.com/callback",
      "Upstash-Failure-Callback": "https://example.com/failed",
      "Upstash-Delay": "3600s",
      "Upstash-Timeout": "90s",
      "Upstash-Deduplication-Id": "python-1",
      "Upstash-Flow-Control-Key": "python",
      "Upstash-Flow-Control-Value": "parallelism=2, rate=3, period=60s",
      "Upstash-Label": "python-label",
    },
    body: "test-body",
    reads: sent,
    keep: keepMessage,
  },
  {
    call: "message.get",
    send: "GET /v2/messages/{message}",
    reads: message.extend(flowControl),
    gives: {
      messageId: "{message}",
      url: "https://example.com/later?a=1",
      method: "PUT",
      body: "test-body",
      maxRetries: 2,
      callback: "https://example.com/callback",
      failureCallback: "https://example.com/failed",
      label: "python-label",
      flowControlKey: "python",
      parallelism: 2,
      rate: 3,
      period: 60,
      retryDelayExpression: "1000 * (1 + retried)",
      header: { "Test-Header": ["test-value"] },
    },
  },
  {
    call: "message.publish_json, not before a time",
    send: "POST /v2/publish/https://example.com",
    headers: { ...json, "Upstash-Not-Before": "{later}", "Upstash-Content-Based-Deduplication": "True" },
    body: pythonJson({ ex_key: "ex_välue" }),
    reads: sent,
    keep: keepMessage,
  },
  {
    call: "message.publish_json, a second time",
    send: "POST /v2/publish/https://example.com",
    headers: { ...json, "Upstash-Not-Before": "{later}", "Upstash-Content-Based-Deduplication": "True" },
    body: pythonJson({ ex_key: "ex_välue" }),
    reads: sent,
    gives: { deduplicated: true },
  },
  { call: "message.cancel", send: "DELETE /v2/messages/{message}" },
  {
    call: "message.publish without a body",
    send: "POST /v2/publish/https://example.com",
    headers: { "Upstash-Delay": "1h" },
    reads: sent,
    keep: keepMessage,
  },
  {
    call: "message.cancel_many",
    send: "DELETE /v2/messages",
    headers: json,
    body: pythonJson({ messageIds: ["{message}"] }),
    reads: z.object({ cancelled: whole }),
    gives: { cancelled: 1 },
  },
  {
    call: "message.cancel_all",
    send: "DELETE /v2/messages",
    reads: z.object({ cancelled: whole }),
    gives: { cancelled: 1 },
  },
];

const twoEndpoints = pythonJson({
  endpoints: [{ url: "https://example.com", name: "first" }, { url: "https://example.net" }],
});

const groups: Row[] = [
  {
    call: "url_group.upsert_endpoints",
    send: "POST /v2/topics/python_url_group/endpoints",
    headers: json,
    body: twoEndpoints,
  },
  {
    call: "url_group.get",
    send: "GET /v2/topics/python_url_group",
    reads: group,
    gives: {
      name: "python_url_group",
      endpoints: [{ url: "https://example.com", name: "first" }, { url: "https://example.net" }],
    },
  },
  {
    call: "url_group.list",
    send: "GET /v2/topics",
    reads: z.array(group),
    gives: [{ name: "python_url_group" }],
  },
  {
    call: "message.publish to a group",
    send: "POST /v2/publish/python_url_group",
    headers: { "Upstash-Delay": "1h" },
    body: "test-body",
    reads: sentToGroup,
    gives: [{ url: "https://example.com" }, { url: "https://example.net" }],
  },
  {
    call: "message.enqueue to a group",
    send: "POST /v2/enqueue/python_queue/python_url_group",
    headers: { "Upstash-Delay": "1h" },
    body: "test-body",
    reads: sentToGroup,
  },
  {
    call: "url_group.remove_endpoints",
    send: "DELETE /v2/topics/python_url_group/endpoints",
    headers: json,
    body: pythonJson({ endpoints: [{ name: "first" }] }),
  },
  {
    call: "url_group.get",
    send: "GET /v2/topics/python_url_group",
    reads: group,
    gives: { endpoints: [{ url: "https://example.net" }] },
  },
  { call: "url_group.delete", send: "DELETE /v2/topics/python_url_group" },
];

const queues: Row[] = [
  {
    call: "queue.upsert",
    send: "POST /v2/queues",
    headers: json,
    body: pythonJson({ queueName: "python_queue", parallelism: 1, paused: true }),
  },
  {
    call: "message.enqueue",
    send: "POST /v2/enqueue/python_queue/https://example.com",
    headers: { "Upstash-Forward-test-header": "test-value" },
    body: "test-body",
    reads: sent,
  },
  {
    call: "message.enqueue_json",
    send: "POST /v2/enqueue/python_queue/https://example.com",
    headers: json,
    body: pythonJson({ test: "body" }),
    reads: sent,
  },
  {
    call: "queue.get",
    send: "GET /v2/queues/python_queue",
    reads: queue,
    gives: { name: "python_queue", parallelism: 1, paused: true, lag: 2 },
  },
  { call: "queue.list", send: "GET /v2/queues", reads: z.array(queue), gives: [{ name: "python_queue" }] },
  { call: "queue.resume", send: "POST /v2/queues/python_queue/resume" },
  { call: "queue.pause", send: "POST /v2/queues/python_queue/pause" },
  { call: "queue.delete", send: "DELETE /v2/queues/python_queue" },
];

const item = (destination: string, more: object = {}) => ({
  destination,
  headers: {},
  body: null,
  queue: null,
  ...more,
});

const batches: Row[] = [
  {
    call: "url_group.upsert_endpoints",
    send: "POST /v2/topics/python_url_group/endpoints",
    headers: json,
    body: twoEndpoints,
  },
  {
    call: "message.batch",
    send: "POST /v2/batch",
    headers: json,
    body: pythonJson([
      item("https://example.com", {
        headers: {
          "Upstash-Forward-test-header-0": "0",
          "Upstash-Forward-content-type": "text/plain",
          "Upstash-Delay": "1h",
        },
        body: "hi 0",
      }),
      item("https://example.com", { headers: { "Upstash-Delay": "1h" } }),
      item("https://example.com", {
        headers: { "Upstash-Delay": "1h" },
        body: "hi 2",
        queue: "python_queue",
      }),
      item("python_url_group", { headers: { "Upstash-Delay": "1h" }, body: "hi 3" }),
    ]),
    reads: sentInBatch,
    gives: [
      { messageId: expect.any(String) },
      {},
      {},
      [{ url: "https://example.com" }, { url: "https://example.net" }],
    ],
    keep: ([first, second, third]: { messageId: string }[]) => ({
      first: first?.messageId ?? "",
      second: second?.messageId ?? "",
      third: third?.messageId ?? "",
    }),
  },
  {
    call: "message.get",
    send: "GET /v2/messages/{first}",
    reads: message,
    gives: { body: "hi 0", url: "https://example.com" },
  },
  {
    call: "message.get",
    send: "GET /v2/messages/{second}",
    reads: message,
    gives: { url: "https://example.com" },
  },
  {
    call: "message.get",
    send: "GET /v2/messages/{third}",
    reads: message,
    gives: { body: "hi 2", queueName: "python_queue" },
  },
  {
    call: "message.batch_json",
    send: "POST /v2/batch",
    headers: json,
    body: pythonJson([
      item("https://example.com", {
        headers: { ...json, "Upstash-Not-Before": "{later}" },
        body: '{"hi": 0}',
      }),
    ]),
    reads: sentInBatch,
    keep: ([only]: { messageId: string }[]) => ({ first: only?.messageId ?? "" }),
  },
  { call: "message.get", send: "GET /v2/messages/{first}", reads: message, gives: { body: '{"hi": 0}' } },
];

/** Calls that publish, enqueue and read messages, by the part of the client. */
export const messageCalls = { publishing, groups, queues, batches };
