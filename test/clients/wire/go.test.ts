import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startDestination } from "../../process/waypost.ts";
import type { ClientTestServer } from "../clientTestServer.ts";
import { startClientTestServer } from "../clientTestServer.ts";
import { go, goJson } from "./dialects.ts";
import type { Row } from "./exchange.ts";
import { expectReplay } from "./exchange.ts";
import { reads } from "./goReads.ts";

// The calls of the Go client (github.com/upstash/qstash-go), as it sends them. The client fails at a status from 400 on, and at a member of
// a response whose type is not the declared one.

const json = { "Content-Type": "application/json" };
const keepMessage = ({ messageId }: { messageId: string }) => ({ message: messageId });

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
  // With the type of JSON, and without a body.
  { call: "Messages().CancelAll", send: "DELETE /v2/messages", headers: json, reads: reads.count, gives: { cancelled: 1 } },
  { call: "Messages().Get of none", send: "GET /v2/messages/msg_none", status: 404, reads: reads.error },
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
  { call: "UrlGroups().List", send: "GET /v2/topics", reads: reads.groups, gives: [{ name: "go_url_group" }] },
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
  { call: "Queues().Get", send: "GET /v2/queues/go_queue", reads: reads.queue, gives: { name: "go_queue", lag: 2, paused: true } },
  { call: "Queues().List", send: "GET /v2/queues", reads: reads.queues, gives: [{ name: "go_queue" }] },
  { call: "Queues().Resume", send: "POST /v2/queues/go_queue/resume" },
  { call: "Queues().Pause", send: "POST /v2/queues/go_queue/pause" },
  { call: "Queues().Delete", send: "DELETE /v2/queues/go_queue" },
];

/** An item of a batch. A text that is not set is empty. */
const item = (more: object) => ({ destination: "https://example.com", body: "", queue: "", headers: {}, ...more });
const late = { "Upstash-Delay": "1h", "Upstash-Retries": "0" };
const lateInLists = { "Upstash-Delay": ["1h"], "Upstash-Retries": ["0"] };

const batches: Row[] = [
  upsertEndpoints,
  {
    call: "Batch",
    send: "POST /v2/batch",
    headers: json,
    body: goJson([
      item({ body: "hi 0", headers: { ...late, "Upstash-Forward-test-header-0": "0", "Upstash-Forward-Content-Type": "text/plain" } }),
      item({ destination: "go_url_group", body: "hi 1", headers: late }),
      item({ headers: late }),
      item({ body: "hi 3", queue: "go_queue", headers: late }),
    ]),
    reads: reads.batch,
    gives: [{ messageId: expect.any(String) }, [{ url: "https://example.com" }, { url: "https://example.net" }], {}, {}],
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
  { call: "Messages().Get", send: "GET /v2/messages/{third}", reads: reads.message, gives: { url: "https://example.com" } },
  { call: "Messages().Get", send: "GET /v2/messages/{fourth}", reads: reads.message, gives: { body: "hi 3", queueName: "go_queue" } },
  {
    call: "BatchJSON of a client whose headers are lists",
    send: "POST /v2/batch",
    headers: json,
    body: goJson([
      item({
        body: goJson({ hi: 0 }),
        headers: { ...lateInLists, "Content-Type": ["application/json"], "Upstash-Method": ["PUT"], "Upstash-Forward-Test": ["a", "b"] },
      }),
    ]),
    reads: reads.batch,
    keep: ([only]: { messageId: string }[]) => ({ first: only?.messageId ?? "" }),
  },
  {
    call: "Messages().Get",
    send: "GET /v2/messages/{first}",
    reads: reads.message,
    gives: { body: '{"hi":0}', method: "PUT", header: { "Content-Type": ["application/json"], Test: ["a", "b"] } },
  },
  { call: "UrlGroups().Delete", send: "DELETE /v2/topics/go_url_group" },
];

const schedules: Row[] = [
  {
    call: "Schedules().Create",
    send: "POST /v2/Schedules/https://example.com/Tick",
    headers: { "Upstash-Cron": "1 1 1 1 1", "Upstash-Method": "PATCH", "Upstash-Delay": "5s", "Upstash-Retries": "1" },
    body: "tick",
    reads: reads.scheduleId,
    keep: ({ scheduleId }: { scheduleId: string }) => ({ schedule: scheduleId }),
  },
  {
    call: "Schedules().Get",
    send: "GET /v2/Schedules/{schedule}",
    reads: reads.schedule,
    gives: { scheduleId: "{schedule}", cron: "1 1 1 1 1", destination: "https://example.com/Tick", delay: 5, method: "PATCH", retries: 1 },
  },
  {
    call: "Schedules().CreateJSON",
    send: "POST /v2/schedules/https://example.com",
    headers: { ...json, "Upstash-Cron": "1 1 1 1 1" },
    body: goJson({ ex_key: "ex_value" }),
    reads: reads.scheduleId,
    keep: ({ scheduleId }: { scheduleId: string }) => ({ schedule: scheduleId }),
  },
  { call: "Schedules().List", send: "GET /v2/schedules", reads: reads.schedules.length(2) },
  { call: "Schedules().Pause", send: "PATCH /v2/schedules/{schedule}/pause" },
  { call: "Schedules().Get", send: "GET /v2/Schedules/{schedule}", reads: reads.schedule, gives: { isPaused: true } },
  { call: "Schedules().Resume", send: "PATCH /v2/schedules/{schedule}/resume" },
  { call: "Schedules().Get", send: "GET /v2/Schedules/{schedule}", reads: reads.schedule, gives: { isPaused: false } },
  { call: "Schedules().Delete", send: "DELETE /v2/schedules/{schedule}" },
];

const keys: Row[] = [
  { call: "Keys().Get", send: "GET /v2/keys", reads: reads.keys },
  // The client posts to a path that the documented API does not have.
  { call: "Keys().Rotate", send: "POST /v2/rotate", status: 404, reads: reads.error },
];

const finished: Row[] = [
  {
    call: "PublishJSON",
    send: "POST /v2/publish/{url}/fine",
    headers: { ...json, "Upstash-Forward-test-header": "test-value" },
    body: goJson({ ex_key: "ex_value" }),
    reads: reads.sent,
    keep: keepMessage,
  },
  {
    call: "Events().List until it is delivered",
    send: "GET /v2/events?messageId={message}&state=DELIVERED",
    reads: reads.events,
    await: true,
    gives: { events: [{ messageId: "{message}", state: "DELIVERED" }] },
  },
  {
    call: "Events().List with filters",
    send: "GET /v2/events?count=10&fromDate=1000000000000&toDate=4102444800000&url={url}%2Ffine",
    reads: reads.events,
    gives: { events: [{ state: "DELIVERED" }, { state: "ACTIVE" }, { state: "CREATED" }] },
  },
  {
    call: "Publish",
    send: "POST /v2/publish/{url}/missing",
    headers: { "Upstash-Retries": "0" },
    body: "lost",
    reads: reads.sent,
    keep: keepMessage,
  },
  {
    call: "Dlq().List until it is there",
    send: "GET /v2/dlq?count=1&messageId={message}",
    reads: reads.deadLetters,
    await: true,
    gives: { messages: [{ messageId: "{message}", responseBody: "404 Not Found", responseStatus: 404, body: "lost" }] },
    keep: ({ messages: [first] }: { messages: { dlqId: string }[] }) => ({ dlq: first?.dlqId ?? "" }),
  },
  {
    call: "Dlq().List with filters",
    send: "GET /v2/dlq?callerIp=127.0.0.1&fromDate=1000000000000&responseStatus=404&toDate=4102444800000&url={url}%2Fmissing",
    reads: reads.deadLetters,
    gives: { messages: [{ dlqId: "{dlq}" }] },
  },
  { call: "Dlq().Get", send: "GET /v2/dlq/{dlq}", reads: reads.deadLetter, gives: { dlqId: "{dlq}", responseBody: "404 Not Found" } },
  {
    call: "Dlq().DeleteMany",
    send: "DELETE /v2/dlq",
    headers: json,
    body: goJson({ dlqIds: ["{dlq}"] }),
    reads: reads.count,
    gives: { deleted: 1 },
  },
  { call: "Dlq().Delete of none", send: "DELETE /v2/dlq/{dlq}", status: 404, reads: reads.error },
];

describe("the Go client", () => {
  let house: ClientTestServer;

  beforeAll(async () => {
    house = await startClientTestServer("SQLite");
  });

  afterAll(() => house.close());

  test.each(Object.entries({ publishing, groups, queues, batches, schedules, keys }))("%s", async (_, rows) => {
    await expectReplay(go, house.createUser(), rows);
  });

  test("messages that are delivered, and messages that fail", async () => {
    const destination = await startDestination(({ path }) =>
      path === "/missing" ? { status: 404, body: "404 Not Found" } : { status: 200 },
    );
    await expectReplay(go, house.createUser(), finished, { url: destination.url });
    expect(destination.arrivals[0]).toMatchObject({
      method: "POST",
      path: "/fine",
      body: Buffer.from('{"ex_key":"ex_value"}'),
      headers: { "test-header": "test-value", "content-type": "application/json" },
    });
  });
});
