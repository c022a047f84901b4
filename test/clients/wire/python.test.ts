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
  flowControlState,
  keys,
  log,
  schedule,
  sent,
  text,
  whole,
} from "./pythonReads.ts";
import { json, keepMessage, messageCalls } from "./pythonMessages.ts";

// The calls of the Python client (package qstash, versions 2.0.5 and 3.4.0), as it sends them.

const schedules: Row[] = [
  {
    call: "schedule.create with every setting",
    send: "POST /v2/schedules/https://example.com/tick",
    headers: {
      "Upstash-Cron": "1 1 1 1 1",
      "Content-Type": "text/plain",
      "Upstash-Method": "PATCH",
      "Upstash-Forward-test-header": "v",
      "Upstash-Retries": "1",
      "Upstash-Retry-Delay": "1000",
      "Upstash-Callback": "https://example.com/callback",
      "Upstash-Failure-Callback": "https://example.com/failed",
      "Upstash-Delay": "5s",
      "Upstash-Timeout": "30s",
      "Upstash-Schedule-Id": "python-schedule",
      "Upstash-Queue-Name": "python_queue",
      "Upstash-Label": "tick",
    },
    body: "tick",
    reads: z.object({ scheduleId: text }),
    gives: { scheduleId: "python-schedule" },
  },
  {
    call: "schedule.get",
    send: "GET /v2/schedules/python-schedule",
    reads: schedule,
    gives: {
      destination: "https://example.com/tick",
      cron: "1 1 1 1 1",
      method: "PATCH",
      retries: 1,
      delay: 5,
      body: "tick",
    },
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
  {
    call: "signing_key.get",
    send: "GET /v2/keys",
    reads: keys,
    keep: ({ next }: { next: string }) => ({ next }),
  },
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
    gives: {
      parallelismMax: 3,
      rateMax: 4,
      ratePeriod: 60,
      isPinnedParallelism: true,
      isPinnedRate: true,
      isPaused: false,
    },
  },
  { call: "flow_control.unpin", send: "POST /v2/flowControl/python/unpin?parallelism=true&rate=true" },
  { call: "flow_control.pause", send: "POST /v2/flowControl/python/pause" },
  {
    call: "flow_control.get",
    send: "GET /v2/flowControl/python",
    reads: flowControlState,
    gives: { isPaused: true },
  },
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
    keep: keepMessage,
  },
  {
    call: "event.list until the message is delivered",
    send: "GET /v2/events?messageId={message}&state=DELIVERED",
    reads: log,
    await: true,
    gives: { events: [{ messageId: "{message}", state: "DELIVERED" }] },
  },
  {
    call: "log.list with every filter",
    send:
      "GET /v2/events?count=10&messageIds={message}&messageIds=msg_other" +
      "&url={url}%2Ffine&label=python-label" +
      "&fromDate=1000000000000&toDate=4102444800000",
    reads: log,
    gives: { events: [{ state: "DELIVERED" }, { state: "ACTIVE" }, { state: "CREATED" }] },
  },
  {
    call: "log.list with filters that match nothing",
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
    keep: keepMessage,
  },
  {
    call: "dlq.list until the dead letter exists",
    send: "GET /v2/dlq?count=1&messageId={message}",
    reads: deadLetters,
    await: true,
    gives: { messages: [{ messageId: "{message}", responseBody: "404 Not Found", responseStatus: 404 }] },
    keep: ({ messages: [first] }: { messages: { dlqId: string }[] }) => ({ dlq: first?.dlqId ?? "" }),
  },
  {
    call: "dlq.get",
    send: "GET /v2/dlq/{dlq}",
    reads: deadLetter,
    gives: { responseBody: "404 Not Found", body: "null" },
  },
  {
    call: "dlq.list with every filter",
    send:
      "GET /v2/dlq?url={url}%2Fmissing&fromDate=1000000000000&toDate=4102444800000" +
      "&responseStatus=404&callerIp=127.0.0.1",
    reads: deadLetters,
    gives: { messages: [{ dlqId: "{dlq}" }] },
  },
  {
    call: "dlq.list with filters that match nothing",
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

  test.each(Object.entries({ ...messageCalls, schedules, others }))(
    "accepts the responses to its calls about %s",
    async (_, rows) => {
      await expectReplay(python, house.createUser(), { rows });
    },
  );

  test("reads delivered and failed messages", async () => {
    const newcomer = house.createUser();
    const destination = await startVerifyingDestination(newcomer, ({ path }) =>
      path === "/missing" ? { status: 404, body: "404 Not Found" } : { status: 200 },
    );
    await expectReplay(python, newcomer, { rows: finished, memory: { url: destination.url } });
    expect(await destination.first()).toMatchObject({
      method: "POST",
      path: "/fine",
      body: Buffer.from('{"ex_key": "ex_value"}'),
      headers: { "test-header": "test-value", "content-type": "application/json" },
    });
  });

  test("reads the text of a refusal", async () => {
    await expectReplay(python, house.createUser(), {
      rows: [
        {
          call: "message.get",
          send: "GET /v2/messages/msg_none",
          status: 404,
          reads: z.object({ error: text }),
        },
        {
          call: "schedule.get",
          send: "GET /v2/schedules/none",
          status: 404,
          reads: z.object({ error: text }),
        },
        {
          call: "message.publish",
          send: "POST /v2/publish/nothing",
          body: "b",
          status: 404,
          reads: z.object({ error: text }),
        },
      ],
    });
  });
});
