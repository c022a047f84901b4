import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import type { ClientTestServer } from "../clientTestServer.ts";
import { startClientTestServer, startVerifyingDestination } from "../clientTestServer.ts";
import type { Row } from "./exchange.ts";
import { expectReplay } from "./exchange.ts";
import { python, pythonJson } from "./dialects.ts";
import {
  deadLetter,
  deadLetters,
  flowControl,
  flowControlState,
  group,
  keys,
  log,
  message,
  queue,
  schedule,
  sent,
  sentInBatch,
  sentToGroup,
  text,
  whole,
} from "./pythonReads.ts";

// The calls of the Python client (package qstash, versions 2.0.5 and 3.4.0), as it sends them.

const json = { "Content-Type": "application/json" };
const kept = { message: ({ messageId }: { messageId: string }) => ({ message: messageId }) };

const publishing: Row[] = [
  {
    call: "message.publish with every setting",
    send: "POST /v2/publish/https://example.com/later?a=1",
    headers: {
      ...{ "Content-Type": "text/plain", "Upstash-Method": "PUT", "Upstash-Forward-test-header": "test-value" },
      ...{ "Upstash-Callback-test-header": "c", "Upstash-Failure-Callback-test-header": "f", "Upstash-Retries": "2" },
      ...{ "Upstash-Retry-Delay": "1000 * (1 + retried)", "Upstash-Callback": "https://example.com/callback" },
      ...{ "Upstash-Failure-Callback": "https://example.com/failed", "Upstash-Delay": "3600s", "Upstash-Timeout": "90s" },
      ...{ "Upstash-Deduplication-Id": "python-1", "Upstash-Flow-Control-Key": "python" },
      ...{ "Upstash-Flow-Control-Value": "parallelism=2, rate=3, period=60s", "Upstash-Label": "python-label" },
    },
    body: "test-body",
    reads: sent,
    keep: kept.message,
  },
  {
    call: "message.get",
    send: "GET /v2/messages/{message}",
    reads: message.extend(flowControl),
    gives: {
      ...{ messageId: "{message}", url: "https://example.com/later?a=1", method: "PUT", body: "test-body", maxRetries: 2 },
      ...{ callback: "https://example.com/callback", failureCallback: "https://example.com/failed", label: "python-label" },
      ...{ flowControlKey: "python", parallelism: 2, rate: 3, period: 60, retryDelayExpression: "1000 * (1 + retried)" },
      header: { "Test-Header": ["test-value"] },
    },
  },
  {
    call: "message.publish_json, not before a time",
    send: "POST /v2/publish/https://example.com",
    headers: { ...json, "Upstash-Not-Before": "{later}", "Upstash-Content-Based-Deduplication": "True" },
    body: pythonJson({ ex_key: "ex_välue" }),
    reads: sent,
    keep: kept.message,
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
    keep: kept.message,
  },
  {
    call: "message.cancel_many",
    send: "DELETE /v2/messages",
    headers: json,
    body: pythonJson({ messageIds: ["{message}"] }),
    reads: z.object({ cancelled: whole }),
    gives: { cancelled: 1 },
  },
  { call: "message.cancel_all", send: "DELETE /v2/messages", reads: z.object({ cancelled: whole }), gives: { cancelled: 1 } },
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
  { call: "url_group.list", send: "GET /v2/topics", reads: z.array(group), gives: [{ name: "python_url_group" }] },
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
  { call: "url_group.get", send: "GET /v2/topics/python_url_group", reads: group, gives: { endpoints: [{ url: "https://example.net" }] } },
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

const item = (destination: string, more: object = {}) => ({ destination, headers: {}, body: null, queue: null, ...more });

const batches: Row[] = [
  { call: "url_group.upsert_endpoints", send: "POST /v2/topics/python_url_group/endpoints", headers: json, body: twoEndpoints },
  {
    call: "message.batch",
    send: "POST /v2/batch",
    headers: json,
    body: pythonJson([
      item("https://example.com", {
        headers: { "Upstash-Forward-test-header-0": "0", "Upstash-Forward-content-type": "text/plain", "Upstash-Delay": "1h" },
        body: "hi 0",
      }),
      item("https://example.com", { headers: { "Upstash-Delay": "1h" } }),
      item("https://example.com", { headers: { "Upstash-Delay": "1h" }, body: "hi 2", queue: "python_queue" }),
      item("python_url_group", { headers: { "Upstash-Delay": "1h" }, body: "hi 3" }),
    ]),
    reads: sentInBatch,
    gives: [{ messageId: expect.any(String) }, {}, {}, [{ url: "https://example.com" }, { url: "https://example.net" }]],
    keep: ([first, second, third]: { messageId: string }[]) => ({
      ...{ first: first?.messageId ?? "", second: second?.messageId ?? "", third: third?.messageId ?? "" },
    }),
  },
  { call: "message.get", send: "GET /v2/messages/{first}", reads: message, gives: { body: "hi 0", url: "https://example.com" } },
  { call: "message.get", send: "GET /v2/messages/{second}", reads: message, gives: { url: "https://example.com" } },
  { call: "message.get", send: "GET /v2/messages/{third}", reads: message, gives: { body: "hi 2", queueName: "python_queue" } },
  {
    call: "message.batch_json",
    send: "POST /v2/batch",
    headers: json,
    body: pythonJson([item("https://example.com", { headers: { ...json, "Upstash-Not-Before": "{later}" }, body: '{"hi": 0}' })]),
    reads: sentInBatch,
    keep: ([only]: { messageId: string }[]) => ({ first: only?.messageId ?? "" }),
  },
  { call: "message.get", send: "GET /v2/messages/{first}", reads: message, gives: { body: '{"hi": 0}' } },
];

const schedules: Row[] = [
  {
    call: "schedule.create with every setting",
    send: "POST /v2/schedules/https://example.com/tick",
    headers: {
      ...{ "Upstash-Cron": "1 1 1 1 1", "Content-Type": "text/plain", "Upstash-Method": "PATCH", "Upstash-Forward-test-header": "v" },
      ...{ "Upstash-Retries": "1", "Upstash-Retry-Delay": "1000", "Upstash-Callback": "https://example.com/callback" },
      ...{ "Upstash-Failure-Callback": "https://example.com/failed", "Upstash-Delay": "5s", "Upstash-Timeout": "30s" },
      ...{ "Upstash-Schedule-Id": "python-schedule", "Upstash-Queue-Name": "python_queue", "Upstash-Label": "tick" },
    },
    body: "tick",
    reads: z.object({ scheduleId: text }),
    gives: { scheduleId: "python-schedule" },
  },
  {
    call: "schedule.get",
    send: "GET /v2/schedules/python-schedule",
    reads: schedule,
    gives: { destination: "https://example.com/tick", cron: "1 1 1 1 1", method: "PATCH", retries: 1, delay: 5, body: "tick" },
  },
  {
    call: "schedule.create_json",
    send: "POST /v2/schedules/https://example.com",
    headers: { "Upstash-Cron": "1 1 1 1 1", ...json },
    body: pythonJson({ ex_key: "ex_value" }),
    reads: z.object({ scheduleId: text }),
    keep: ({ scheduleId }: { scheduleId: string }) => ({ schedule: scheduleId }),
  },
  { call: "schedule.list", send: "GET /v2/schedules", reads: z.array(schedule).length(2) },
  { call: "schedule.pause", send: "PATCH /v2/schedules/{schedule}/pause" },
  {
    call: "schedule.get",
    send: "GET /v2/schedules/{schedule}",
    reads: schedule,
    gives: { isPaused: true, body: '{"ex_key": "ex_value"}' },
  },
  { call: "schedule.resume", send: "PATCH /v2/schedules/{schedule}/resume" },
  { call: "schedule.delete", send: "DELETE /v2/schedules/{schedule}" },
];

const others: Row[] = [
  { call: "signing_key.get", send: "GET /v2/keys", reads: keys, keep: ({ next }: { next: string }) => ({ next }) },
  { call: "signing_key.rotate", send: "POST /v2/keys/rotate", reads: keys, gives: { current: "{next}" } },
  { call: "readiness.check", send: "GET /v2/readiness", reads: z.object({ ready: z.literal(true) }) },
  {
    call: "message.publish with flow control",
    send: "POST /v2/publish/https://example.com",
    headers: {
      "Upstash-Flow-Control-Key": "python",
      "Upstash-Flow-Control-Value": "parallelism=5, rate=10, period=1m",
      "Upstash-Delay": "1h",
    },
    body: "test-body",
    reads: sent,
  },
  { call: "flow_control.pin", send: "POST /v2/flowControl/python/pin?parallelism=3&rate=4&period=60" },
  {
    call: "flow_control.get",
    send: "GET /v2/flowControl/python",
    reads: flowControlState,
    gives: { parallelismMax: 3, rateMax: 4, ratePeriod: 60, isPinnedParallelism: true, isPinnedRate: true, isPaused: false },
  },
  { call: "flow_control.unpin", send: "POST /v2/flowControl/python/unpin?parallelism=true&rate=true" },
  { call: "flow_control.pause", send: "POST /v2/flowControl/python/pause" },
  { call: "flow_control.get", send: "GET /v2/flowControl/python", reads: flowControlState, gives: { isPaused: true } },
  { call: "flow_control.resume", send: "POST /v2/flowControl/python/resume" },
  { call: "flow_control.reset_rate", send: "POST /v2/flowControl/python/resetRate" },
  {
    call: "flow_control.get_global_parallelism",
    send: "GET /v2/globalParallelism",
    reads: z.object({ parallelismMax: whole, parallelismCount: whole }),
  },
];

const finished: Row[] = [
  {
    call: "message.publish_json",
    send: "POST /v2/publish/{url}/fine",
    headers: { ...json, "Upstash-Forward-test-header": "test-value", "Upstash-Label": "python-label" },
    body: pythonJson({ ex_key: "ex_value" }),
    reads: sent,
    keep: kept.message,
  },
  {
    call: "event.list until it is delivered",
    send: "GET /v2/events?messageId={message}&state=DELIVERED",
    reads: log,
    await: true,
    gives: { events: [{ messageId: "{message}", state: "DELIVERED" }] },
  },
  {
    call: "log.list with every filter",
    send:
      "GET /v2/events?count=10&messageIds={message}&messageIds=msg_other&url={url}%2Ffine&label=python-label" +
      "&fromDate=1000000000000&toDate=4102444800000",
    reads: log,
    gives: { events: [{ state: "DELIVERED" }, { state: "ACTIVE" }, { state: "CREATED" }] },
  },
  {
    call: "log.list with filters that nothing has",
    send: "GET /v2/events?topicName=none&queueName=none&scheduleId=none",
    reads: log,
    gives: { events: [] },
  },
  {
    call: "message.publish_json",
    send: "POST /v2/publish/{url}/missing",
    headers: { ...json, "Upstash-Retries": "0" },
    body: pythonJson(null),
    reads: sent,
    keep: kept.message,
  },
  {
    call: "dlq.list until it is there",
    send: "GET /v2/dlq?count=1&messageId={message}",
    reads: deadLetters,
    await: true,
    gives: { messages: [{ messageId: "{message}", responseBody: "404 Not Found", responseStatus: 404 }] },
    keep: ({ messages: [first] }: { messages: { dlqId: string }[] }) => ({ dlq: first?.dlqId ?? "" }),
  },
  { call: "dlq.get", send: "GET /v2/dlq/{dlq}", reads: deadLetter, gives: { responseBody: "404 Not Found", body: "null" } },
  {
    call: "dlq.list with every filter",
    send: "GET /v2/dlq?url={url}%2Fmissing&fromDate=1000000000000&toDate=4102444800000&responseStatus=404&callerIp=127.0.0.1",
    reads: deadLetters,
    gives: { messages: [{ dlqId: "{dlq}" }] },
  },
  {
    call: "dlq.list with filters that nothing has",
    send: "GET /v2/dlq?topicName=none&queueName=none&scheduleId=none",
    reads: deadLetters,
    gives: { messages: [] },
  },
  {
    call: "dlq.delete_many",
    send: "DELETE /v2/dlq",
    headers: json,
    body: pythonJson({ dlqIds: ["{dlq}"] }),
    reads: z.object({ deleted: whole }),
    gives: { deleted: 1 },
  },
];

describe("the Python client", () => {
  let house: ClientTestServer;

  beforeAll(async () => {
    house = await startClientTestServer("SQLite");
  });

  afterAll(() => house.close());

  test.each(Object.entries({ publishing, groups, queues, batches, schedules, others }))("%s", async (_, rows) => {
    await expectReplay(python, house.createUser(), rows);
  });

  test("messages that are delivered, and messages that fail", async () => {
    const newcomer = house.createUser();
    const destination = await startVerifyingDestination(newcomer, ({ path }) =>
      path === "/missing" ? { status: 404, body: "404 Not Found" } : { status: 200 },
    );
    await expectReplay(python, newcomer, finished, { url: destination.url });
    expect(await destination.first()).toMatchObject({
      ...{ method: "POST", path: "/fine", body: Buffer.from('{"ex_key": "ex_value"}') },
      headers: { "test-header": "test-value", "content-type": "application/json" },
    });
  });

  test("what a call is refused for is a text", async () => {
    await expectReplay(python, house.createUser(), [
      { call: "message.get", send: "GET /v2/messages/msg_none", status: 404, reads: z.object({ error: text }) },
      { call: "schedule.get", send: "GET /v2/schedules/none", status: 404, reads: z.object({ error: text }) },
      { call: "message.publish", send: "POST /v2/publish/nothing", body: "b", status: 404, reads: z.object({ error: text }) },
    ]);
  });
});
