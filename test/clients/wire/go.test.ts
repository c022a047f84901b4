import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startDestination } from "../../server/waypost.ts";
import type { ClientTestServer } from "../clientTestServer.ts";
import { startClientTestServer } from "../clientTestServer.ts";
import { go, goJson } from "./dialects.ts";
import type { Row } from "./exchange.ts";
import { expectReplay } from "./exchange.ts";
import { json, keepMessage, messageCalls } from "./goMessages.ts";
import { reads } from "./goReads.ts";

// The calls of the Go client (github.com/upstash/qstash-go), as it sends them. The client fails if the status
// is at least 400, or if a member of a response does not have the declared type.

const schedules: Row[] = [
  {
    call: "Schedules().Create",
    send: "POST /v2/Schedules/https://example.com/Tick",
    headers: {
      "Upstash-Cron": "1 1 1 1 1",
      "Upstash-Method": "PATCH",
      "Upstash-Delay": "5s",
      "Upstash-Retries": "1",
    },
    body: "tick",
    reads: reads.scheduleId,
    keep: ({ scheduleId }: { scheduleId: string }) => ({ schedule: scheduleId }),
  },
  {
    call: "Schedules().Get",
    send: "GET /v2/Schedules/{schedule}",
    reads: reads.schedule,
    gives: {
      scheduleId: "{schedule}",
      cron: "1 1 1 1 1",
      destination: "https://example.com/Tick",
      delay: 5,
      method: "PATCH",
      retries: 1,
    },
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
  {
    call: "Schedules().Get",
    send: "GET /v2/Schedules/{schedule}",
    reads: reads.schedule,
    gives: { isPaused: true },
  },
  { call: "Schedules().Resume", send: "PATCH /v2/schedules/{schedule}/resume" },
  {
    call: "Schedules().Get",
    send: "GET /v2/Schedules/{schedule}",
    reads: reads.schedule,
    gives: { isPaused: false },
  },
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
    call: "Events().List until the message is delivered",
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
    call: "Dlq().List until the dead letter exists",
    send: "GET /v2/dlq?count=1&messageId={message}",
    reads: reads.deadLetters,
    await: true,
    gives: {
      messages: [
        { messageId: "{message}", responseBody: "404 Not Found", responseStatus: 404, body: "lost" },
      ],
    },
    keep: ({ messages: [first] }: { messages: { dlqId: string }[] }) => ({ dlq: first?.dlqId ?? "" }),
  },
  {
    call: "Dlq().List with filters",
    send:
      "GET /v2/dlq?callerIp=127.0.0.1&fromDate=1000000000000&responseStatus=404" +
      "&toDate=4102444800000&url={url}%2Fmissing",
    reads: reads.deadLetters,
    gives: { messages: [{ dlqId: "{dlq}" }] },
  },
  {
    call: "Dlq().Get",
    send: "GET /v2/dlq/{dlq}",
    reads: reads.deadLetter,
    gives: { dlqId: "{dlq}", responseBody: "404 Not Found" },
  },
  {
    call: "Dlq().DeleteMany",
    send: "DELETE /v2/dlq",
    headers: json,
    body: goJson({ dlqIds: ["{dlq}"] }),
    reads: reads.count,
    gives: { deleted: 1 },
  },
  { call: "Dlq().Delete of an unknown entry", send: "DELETE /v2/dlq/{dlq}", status: 404, reads: reads.error },
];

describe("the Go client", () => {
  let house: ClientTestServer;

  beforeAll(async () => {
    house = await startClientTestServer("SQLite");
  });

  afterAll(() => house.close());

  test.each(Object.entries({ ...messageCalls, schedules, keys }))(
    "accepts the responses to its calls about %s",
    async (_, rows) => {
      await expectReplay(go, house.createUser(), { rows });
    },
  );

  test("reads delivered and failed messages", async () => {
    const destination = await startDestination(({ path }) =>
      path === "/missing" ? { status: 404, body: "404 Not Found" } : { status: 200 },
    );
    await expectReplay(go, house.createUser(), { rows: finished, memory: { url: destination.url } });
    expect(destination.arrivals[0]).toMatchObject({
      method: "POST",
      path: "/fine",
      body: Buffer.from('{"ex_key":"ex_value"}'),
      headers: { "test-header": "test-value", "content-type": "application/json" },
    });
  });
});
