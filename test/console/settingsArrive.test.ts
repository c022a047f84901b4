import { expect, test } from "vitest";
import type { Kind } from "../../console/src/pages/tools/publishSettings.ts";
import {
  emptyDraft,
  listSettings,
  toHeaders,
  toPublishPath,
} from "../../console/src/pages/tools/publishSettings.ts";
import { hour, minute, second } from "../../src/engine/core/values/time.ts";
import type { TestServer } from "../api/testServer.ts";
import { createTestServer, testTime } from "../api/testServer.ts";

const destination = "https://example.com/orders";
const told = "https://example.com/told";

/** The text that a person types into a field, and the part of the stored message that it becomes. */
type Row = readonly [typed: string, stored: object, more?: Readonly<Record<string, string>>];

/** The settings that a message and a callback may have, each with its values in one of them. */
const shared: Readonly<Record<string, Row>> = {
  delay: ["2h", { delay: 2 * hour }],
  retries: ["7", { retries: 7 }],
  timeout: ["42s", { timeout: 42 * second }],
  "retry-delay": ["1000 * retried", { retryDelay: "1000 * retried" }],
  "flow-control-key": ["k", { flowControl: { key: "k" } }, { "flow-control-value": "rate=1" }],
  "flow-control-value": [
    "parallelism=2, rate=9, period=1m",
    { flowControl: { key: "k", parallelism: 2, rate: 9, period: minute } },
    { "flow-control-key": "k" },
  ],
  label: ["eu, billing", { labels: ["eu", "billing"] }],
  callback: [told, { callback: { url: told } }],
  "failure-callback": [told, { failureCallback: { url: told } }],
  forward: ["X-One: 1", { headers: expect.arrayContaining([["X-One", "1"]]) }],
};

const ofMessage: Readonly<Record<string, Row>> = {
  ...shared,
  delay: ["2h", { notBefore: testTime + 2 * hour }],
  "not-before": ["2027-02-03T04:05", { notBefore: new Date(2027, 1, 3, 4, 5).getTime() }],
  "header-forward": ["true", { headers: expect.arrayContaining([["X-Program", "p"]]) }],
  "deduplication-id": ["once", { deduplication: expect.any(String) }],
  "deduplication-window": ["1h", { expiresAt: testTime + hour }, { "deduplication-id": "once" }],
  "content-based-deduplication": ["true", { deduplication: expect.any(String) }],
  "redact-fields": ["body, header[X-One]", { redaction: expect.objectContaining({ body: true }) }],
  "keep-response": ["true", { keepResponse: true }],
  "hide-headers": ["true", { hideHeaders: true }],
  "ack-timeout": ["2h", { ackTimeout: 2 * hour }],
};

const ofCallback: Readonly<Record<string, Row>> = { ...shared, method: ["PUT", { method: "PUT" }] };

/** The rows of all fields of the form for a message, by the names of the settings. */
const rows: Readonly<Record<string, Row>> = {
  ...ofMessage,
  ...prefix("callback", "callback"),
  ...prefix("failure-callback", "failureCallback"),
};

/** Returns the rows of the settings of a callback. Each needs the URL of the callback. */
function prefix(callback: string, field: string): Record<string, Row> {
  return Object.fromEntries(
    Object.entries(ofCallback).map(([name, [typed, stored, more = {}]]) => {
      const others = Object.entries(more).map(([other, value]) => [`${callback}-${other}`, value] as const);
      const sent = { [callback]: told, ...Object.fromEntries(others) };
      return [`${callback}-${name}`, [typed, { [field]: { url: told, ...stored } }, sent]];
    }),
  );
}

const namesOf = (kind: Kind): string[] => listSettings(kind).map(({ name }) => name);

test("every field of the form for a message has a row below", () => {
  expect(Object.keys(rows).toSorted()).toEqual(namesOf("message").toSorted());
});

test.each(Object.entries(rows))("%s arrives in the stored message", async (name, [typed, stored, more]) => {
  const server = await createTestServer();
  const draft = { ...emptyDraft, destination, values: { ...more, [name]: typed } };
  const { "Svc-Method": none, ...headers } = toHeaders(draft);
  expect(none).toBeUndefined();
  const reply = await send(server, toPublishPath(draft), { ...headers, "X-Program": "p" });
  expect(reply, JSON.stringify(reply)).toMatchObject({ status: 200 });
  const { storedMessages, deduplications } = server.memory.tables;
  // The window is stored beside the message.
  const [row] = [...(name === "deduplication-window" ? deduplications : storedMessages).values()];
  expect(row).toMatchObject(stored);
});

test.each([
  ["cron", "0 4 * * *", { cron: "0 4 * * *" }],
  ["schedule-id", "daily", { id: "daily" }],
])("%s arrives in the stored schedule", async (name, typed, stored) => {
  const server = await createTestServer();
  const values = { cron: "* * * * *", [name]: typed };
  const draft = { ...emptyDraft, kind: "schedule" as const, destination, queue: "parcels", values };
  expect(await send(server, toPublishPath(draft), toHeaders(draft))).toMatchObject({ status: 200 });
  const [schedule] = [...server.memory.tables.schedules.values()];
  expect(schedule).toMatchObject(stored);
  expect(schedule?.messageInput).toMatchObject({ queue: "parcels" });
});

test("the id of a run, the method and the queue arrive", async () => {
  const server = await createTestServer();
  const values = { "workflow-runid": "order-1" };
  const run = { ...emptyDraft, kind: "run" as const, destination, values };
  expect((await send(server, toPublishPath(run), toHeaders(run))).body.workflowRunId).toBe("order-1");
  const draft = { ...emptyDraft, destination, method: "PATCH", queue: "parcels", type: "text/plain" };
  await send(server, toPublishPath(draft), toHeaders(draft));
  const message = [...server.memory.tables.storedMessages.values()].find(({ queue }) => queue !== null);
  expect(message).toMatchObject({ method: "PATCH", queue: "parcels" });
  expect(message?.headers).toContainEqual(["Content-Type", "text/plain"]);
});

const send = (server: TestServer, path: string, headers: Record<string, string>) =>
  server.ask("POST", path, { headers, body: "{}" });
