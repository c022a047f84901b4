import { expect } from "vitest";
import { goJson } from "./dialects.ts";
import type { Row } from "./exchange.ts";
import { reads } from "./goReads.ts";

/** The content type of calls with JSON. */
export const json = { "Content-Type": "application/json" };

/** Remembers the id of a published message as `message`. */
export const keepMessage = ({ messageId }: { messageId: string }) => ({ message: messageId });

const publishing: Row[] = [
  {
    call: "Publish with every setting",
    send: "POST /v2/publish/http://example.com",
    headers: {
      "Content-Type": "text/plain",
      "Upstash-Method": "PUT",
      "Upstash-Forward-test-header": "test-value",
      "Upstash-Retries": "0",
      "Upstash-Callback": "http://example.com/callback",
      "Upstash-Delay": "10m",
      "Upstash-Failure-Callback": "http://example.com/failed",
      "Upstash-Deduplication-Id": "go-1",
      "Upstash-Timeout": "1s",
    },
    body: "test-body",
    reads: reads.sent,
    keep: keepMessage,
  },
  {
    call: "Messages().Get",
    send: "GET /v2/messages/{message}",
    reads: reads.message,
    gives: {
      messageId: "{message}",
      body: "test-body",
      url: "http://example.com",
      method: "PUT",
      maxRetries: 0,
      header: { "Test-Header": ["test-value"] },
      callback: "http://example.com/callback",
    },
  },
  {
    call: "PublishJSON not before a time",
    send: "POST /v2/publish/https://example.com",
    headers: { ...json, "Upstash-Not-Before": "{later}", "Upstash-Content-Based-Deduplication": "true" },
    body: goJson({ ex_key: "<ex & value>" }),
    reads: reads.sent,
    keep: keepMessage,
  },
  { call: "Messages().Cancel", send: "DELETE /v2/messages/{message}" },
  {
    call: "Publish without a body",
    send: "POST /v2/publish/https://example.com",
    headers: { "Upstash-Delay": "1h" },
    reads: reads.sent,
    keep: keepMessage,
  },
  {
    call: "Messages().CancelMany",
    send: "DELETE /v2/messages",
    headers: json,
    body: goJson({ messageIds: ["{message}"] }),
    reads: reads.count,
    gives: { cancelled: 1 },
  },
  // This call has the type of JSON and no body.
  {
    call: "Messages().CancelAll",
    send: "DELETE /v2/messages",
    headers: json,
    reads: reads.count,
    gives: { cancelled: 1 },
  },
  {
    call: "Messages().Get of an unknown message",
    send: "GET /v2/messages/msg_none",
    status: 404,
    reads: reads.error,
  },
];

const upsertEndpoints: Row = {
  call: "UrlGroups().UpsertEndpoints",
  send: "POST /v2/topics/go_url_group/endpoints",
  headers: json,
  body: goJson({
    endpoints: [
      { url: "https://example.com", name: "First endpoint" },
      { url: "https://example.net", name: "Second endpoint" },
    ],
  }),
};

const groups: Row[] = [
  upsertEndpoints,
  {
    call: "UrlGroups().Get",
    send: "GET /v2/topics/go_url_group",
    reads: reads.group,
    gives: { name: "go_url_group", endpoints: [{ name: "First endpoint" }, { name: "Second endpoint" }] },
  },
  {
    call: "UrlGroups().List",
    send: "GET /v2/topics",
    reads: reads.groups,
    gives: [{ name: "go_url_group" }],
  },
  {
    call: "UrlGroups().Publish",
    send: "POST /v2/publish/go_url_group",
    headers: { "Upstash-Delay": "1h" },
    body: "test-body",
    reads: reads.sentToGroup,
    gives: [{ url: "https://example.com" }, { url: "https://example.net" }],
  },
  {
    call: "UrlGroups().EnqueueJSON",
    send: "POST /v2/enqueue/go_queue/go_url_group",
    headers: { ...json, "Upstash-Delay": "1h" },
    body: goJson({ test: "body" }),
    reads: reads.sentToGroup,
  },
  {
    call: "UrlGroups().RemoveEndpoints",
    send: "DELETE /v2/topics/go_url_group/endpoints",
    headers: json,
    body: goJson({ endpoints: [{ url: "", name: "First endpoint" }] }),
  },
  {
    call: "UrlGroups().Get",
    send: "GET /v2/topics/go_url_group",
    reads: reads.group,
    gives: { endpoints: [{ url: "https://example.net", name: "Second endpoint" }] },
  },
  { call: "UrlGroups().Delete", send: "DELETE /v2/topics/go_url_group" },
];

const queues: Row[] = [
  {
    call: "Queues().Upsert",
    send: "POST /v2/queues",
    headers: json,
    body: goJson({ queueName: "go_queue", parallelism: 1, paused: true }),
  },
  {
    call: "Enqueue",
    send: "POST /v2/enqueue/go_queue/https://example.com",
    headers: { "Upstash-Forward-test-header": "test-value" },
    body: "test-body",
    reads: reads.sent,
  },
  {
    call: "EnqueueJSON",
    send: "POST /v2/enqueue/go_queue/https://example.com",
    headers: json,
    body: goJson({ test: "body" }),
    reads: reads.sent,
  },
  {
    call: "Queues().Get",
    send: "GET /v2/queues/go_queue",
    reads: reads.queue,
    gives: { name: "go_queue", lag: 2, paused: true },
  },
  { call: "Queues().List", send: "GET /v2/queues", reads: reads.queues, gives: [{ name: "go_queue" }] },
  { call: "Queues().Resume", send: "POST /v2/queues/go_queue/resume" },
  { call: "Queues().Pause", send: "POST /v2/queues/go_queue/pause" },
  { call: "Queues().Delete", send: "DELETE /v2/queues/go_queue" },
];

/** Returns an item of a batch. A string that is not set is empty. */
const item = (more: object) => ({
  destination: "https://example.com",
  body: "",
  queue: "",
  headers: {},
  ...more,
});
const late = { "Upstash-Delay": "1h", "Upstash-Retries": "0" };
const lateInLists = { "Upstash-Delay": ["1h"], "Upstash-Retries": ["0"] };

const batches: Row[] = [
  upsertEndpoints,
  {
    call: "Batch",
    send: "POST /v2/batch",
    headers: json,
    body: goJson([
      item({
        body: "hi 0",
        headers: {
          ...late,
          "Upstash-Forward-test-header-0": "0",
          "Upstash-Forward-Content-Type": "text/plain",
        },
      }),
      item({ destination: "go_url_group", body: "hi 1", headers: late }),
      item({ headers: late }),
      item({ body: "hi 3", queue: "go_queue", headers: late }),
    ]),
    reads: reads.batch,
    gives: [
      { messageId: expect.any(String) },
      [{ url: "https://example.com" }, { url: "https://example.net" }],
      {},
      {},
    ],
    keep: ([first, , third, fourth]: { messageId: string }[]) => ({
      first: first?.messageId ?? "",
      third: third?.messageId ?? "",
      fourth: fourth?.messageId ?? "",
    }),
  },
  {
    call: "Messages().Get",
    send: "GET /v2/messages/{first}",
    reads: reads.message,
    gives: { body: "hi 0", maxRetries: 0, header: { "Test-Header-0": ["0"] } },
  },
  {
    call: "Messages().Get",
    send: "GET /v2/messages/{third}",
    reads: reads.message,
    gives: { url: "https://example.com" },
  },
  {
    call: "Messages().Get",
    send: "GET /v2/messages/{fourth}",
    reads: reads.message,
    gives: { body: "hi 3", queueName: "go_queue" },
  },
  {
    call: "BatchJSON of a client whose headers are lists",
    send: "POST /v2/batch",
    headers: json,
    body: goJson([
      item({
        body: goJson({ hi: 0 }),
        headers: {
          ...lateInLists,
          "Content-Type": ["application/json"],
          "Upstash-Method": ["PUT"],
          "Upstash-Forward-Test": ["a", "b"],
        },
      }),
    ]),
    reads: reads.batch,
    keep: ([only]: { messageId: string }[]) => ({ first: only?.messageId ?? "" }),
  },
  {
    call: "Messages().Get",
    send: "GET /v2/messages/{first}",
    reads: reads.message,
    gives: {
      body: '{"hi":0}',
      method: "PUT",
      header: { "Content-Type": ["application/json"], Test: ["a", "b"] },
    },
  },
  { call: "UrlGroups().Delete", send: "DELETE /v2/topics/go_url_group" },
];

/** Calls that publish, enqueue and read messages, by the part of the client. */
export const messageCalls = { publishing, groups, queues, batches };
