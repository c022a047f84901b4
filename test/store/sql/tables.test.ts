import { describe, expect, test } from "vitest";
import type { Rows, TableName } from "../../../src/core/decision/command.ts";
import { tableNames } from "../../../src/store/store.ts";
import { tables } from "../../../src/store/sql/tables.ts";
import { makeAccount, bytes, makeCallback, makeInput } from "../storeFixture.ts";

const { delay: _, ...letter } = makeInput({ callback: makeCallback("https://two.example/"), labels: ["l"], retryDelay: "1000" });
const { body: _body, ...scheduled } = makeInput();

/** One row of each table with something in every field. */
const full: { [T in TableName]: Rows[T] } = {
  accounts: { ...makeAccount("acc"), createdAt: 5 },
  storedMessages: {
    ...{
      ...letter,
      account: "acc",
      id: "msg_1",
      createdAt: 1,
      notBefore: 2,
      retries: 3,
      timeout: 4,
      startedAtOnce: true,
      deduplication: "d",
    },
    ...{ redaction: { body: true, headers: ["X-A"] }, reportsOn: { kind: "callback", messageId: "msg_0", dlqId: null } },
  },
  messages: {
    ...{
      account: "acc",
      id: "msg_1",
      state: "active",
      dueAt: 2 ** 45,
      attempts: 3,
      lostAttempts: 1,
      leasedBy: "nod_a",
      host: "one.example",
      size: 5,
      reportsOutcome: true,
      queue: "q",
      flowControlKey: "k",
      slot: "msg_0",
      waitlist: "key:k",
      run: "run_1",
      tags: ["label:l", "queue:q"],
      counted: true,
      countedToEndpoint: true,
      timeKeys: "url:1 host:2",
      endpoint: "https://one.example/x",
    },
  },
  limiters: {
    ...{ account: "acc", id: "key:k", createdAt: 1, updatedAt: 2, dueAt: 2 ** 45, paused: true, parallelism: 3, running: 1, waiting: 2 },
    ...{ rate: 4, period: 5, windowStart: 2 ** 45, windowUsed: 6, lastDueAt: 7, pinned: { parallelism: true, rate: false } },
  },
  queueSlots: { account: "acc", id: "msg_1", queue: "q", holders: 2 },
  urlGroups: {
    ...{ account: "acc", name: "g", createdAt: 1, updatedAt: 2, endpoints: [{ name: null, url: "https://one.example/" }] },
    headers: [["Svc-Retries", "3"]],
  },
  schedules: {
    ...{ account: "acc", id: "scd_1", cron: "* * * * *", createdAt: 1, dueAt: 2 ** 45, paused: false, lastAt: 3, lastMessages: ["msg_1"] },
    ...{ messageInput: scheduled, body: bytes("hello") },
  },
  tokens: {
    ...{ account: "acc", id: "tok_1", hash: "h", name: "n", verbs: ["publish"], destinations: ["https://one.example/*"] },
    ...{ createdAt: 1, expiresAt: 2, usedAt: null, madeBy: "tok_0" },
  },
  sources: {
    ...{ account: "acc", id: "src_1", name: "s", secretHash: "h", destination: "https://one.example/", headers: [["Svc-Retries", "3"]] },
    ...{
      verification: { scheme: "github", secret: "s" },
      deduplicate: true,
      paused: false,
      createdAt: 1,
      rejected: 2,
      kept: 1,
      keptUntil: 3,
      acceptedAt: null,
    },
  },
  rejections: {
    ...{ account: "acc", id: "src_1/1", time: 2 ** 45, reason: "r", method: "POST", headers: [["A", "b"]], callerIp: null },
    ...{ number: 0, others: 1, size: 9, body: bytes("hello") },
  },
  deduplications: { account: "acc", key: "d", messageId: "msg_1", expiresAt: 2 ** 45, made: { at: 2 ** 44, url: "https://a.example/" } },
  deadLetters: {
    ...{ account: "acc", id: "1-1", messageId: "msg_1", status: 500, headers: [["A", "b"]], body: bytes("b"), error: "e", retried: 2 },
    failureCallback: { state: "CALLBACK_FAIL", responseStatus: 1, responseBody: "x", responseHeaders: [] },
    tags: ["label:l"],
  },
  hostWaitlists: { account: "acc", host: "one.example", dueAt: 2 ** 45 },
  log: {
    ...{ account: "acc", id: "1-1", messageId: "msg_1", time: 2 ** 45, states: ["ERROR", "RETRY"], error: "e", nextDueAt: 7, status: 500 },
    ...{ headers: [["A", "b"]], body: bytes("b"), dlqId: "1-2", tags: ["label:l"] },
  },
  keptLog: {
    ...{ account: "acc", id: "1-2", messageId: "msg_1", time: 2 ** 45, states: ["FAILED"], error: "e", nextDueAt: null, status: 500 },
    ...{ headers: [["A", "b"]], body: bytes("b"), dlqId: "1-2", tags: ["label:l"] },
  },
  tags: { account: "acc", id: "log label:l 1-1" },
  timeIndex: { account: "acc", id: "020833 any 1800000000000" },
  runs: {
    ...{ account: "acc", id: "run_1", runId: "wfr_1", url: "https://one.example/", createdAt: 1, state: "RUN_FAILED", endedAt: 2 ** 45 },
    ...{ brand: "svc", features: { lazyFetch: true, initialBody: true, detect: true, captured: true }, labels: ["l"], redaction: null },
    ...{ callerIp: "192.0.2.1", invoker: null, origin: "run_0", steps: 3, failure: null, body: bytes("result") },
    settings: { ...makeCallback("https://two.example/"), callback: null, failureCallback: null },
  },
  activeRuns: { account: "acc", runId: "wfr_1", run: "run_1", steps: 3, size: 400, firstMessage: "msg_1", waiting: 2 },
  steps: {
    ...{ account: "acc", id: "run_1/r1", run: "run_1", position: 1, messageId: "msg_1", callType: "step", createdAt: 2 ** 45 },
    ...{ head: { stepId: 1, stepName: "a", stepType: "Run", concurrent: 1 }, url: "https://one.example/", headers: [["A", "b"]] },
    body: bytes("step"),
    waited: { createdAt: 1, dueAt: 2 ** 45, child: null },
  },
  waiters: {
    ...{ account: "acc", id: "run_1/2", run: "run_1", runId: "wfr_1", kind: "event", event: "e", createdAt: 1, dueAt: 2 ** 45 },
    ...{ url: "https://one.example/", headers: [["A", "b"]], given: [], timeout: "1d", timeoutUrl: "https://one.example/" },
    ...{ timeoutHeaders: [], timeoutGiven: [], step: { stepId: 2 }, child: null },
  },
  usage: {
    ...{ account: "acc", id: "3h/1800000000000/nod_a", messages: 1, workflowMessages: 2, workflowRuns: 3, delivered: 4, failed: 5 },
    ...{ cancelled: 6, workflowDelivered: 7, workflowFailed: 8, workflowCancelled: 9, bytesIn: 2 ** 45, bytesOut: 11, deadLetters: -12 },
    storedBytes: -(2 ** 45),
  },
  dayCounts: { account: "acc", day: 1_800_000_000_000, requests: 5 },
  secondCounts: { account: "acc", second: 1_800_000_000, requests: 5 },
  audit: {
    ...{ account: "acc", id: "aud_1", time: 2 ** 45, what: "queue.set", object: "q", count: 2, fields: ["paused"] },
    by: { kind: "token", token: "main", name: "n", address: "192.0.2.1" },
  },
  notifications: {
    ...{ account: "acc", id: "run_1/ntf_1", run: "run_1", kind: "webhook", event: "e", createdAt: 2 ** 45, size: 5, body: bytes("event") },
  },
};

describe.each(tableNames)("a row of %s", (name) => {
  check(name);
});

function check<T extends TableName>(name: T): void {
  const table = tables[name];
  const row = full[name];

  test("is written in the order of the columns, and the key comes first", () => {
    expect(Object.keys(table.write(row))).toEqual(Object.keys(table.columns));
    expect(Object.keys(table.columns).slice(0, table.key.length)).toEqual(table.key);
  });

  test("is read as it was written", () => {
    expect(table.read(table.write(row))).toEqual(row);
  });
}
