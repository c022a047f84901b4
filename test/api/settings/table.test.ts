import { beforeEach, describe, expect, test } from "vitest";
import type { MessageSettingName } from "../../../src/api/settings/table.ts";
import { settingRows } from "../../../src/api/settings/table.ts";
import { canonicalName } from "../../../src/engine/core/values/headers.ts";
import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import { testTime, shareTestServer } from "../testServer.ts";

type Case = { good: [text: string, expected: Partial<MessageInput>][]; bad: string[] };
const day = 86_400_000;
const noCallback = {
  method: "POST",
  headers: [],
  retries: null,
  retryDelay: null,
  timeout: null,
  flowControl: null,
  callback: null,
  failureCallback: null,
};

/** For every setting: accepted texts with the resulting message, and refused texts. */
const cases: Record<Exclude<MessageSettingName, "cron" | "queue-name">, Case> = {
  method: {
    good: [
      ["GET", { method: "GET" }],
      ["patch", { method: "PATCH" }],
    ],
    bad: ["", "HEAD", "GET POST", "G\u00cbT"],
  },
  delay: {
    good: [
      ["50s", { notBefore: testTime + 50_000 }],
      ["1d10h30m", { notBefore: testTime + day + 37_800_000 }],
      ["7", { notBefore: testTime + 7_000 }],
      ["50ms", { notBefore: testTime + 50 }],
      ["1.5h", { notBefore: testTime + 5_400_000 }],
    ],
    bad: ["", "-1s", "1,5h", "1 s", "soon", "9".repeat(30)],
  },
  "not-before": {
    good: [
      [String(testTime / 1000 + 60), { notBefore: testTime + 60_000 }],
      [`${testTime / 1000 + 60}.4`, { notBefore: testTime + 60_000 }],
      ["1", { notBefore: testTime }],
    ],
    bad: ["", "-1", "tomorrow", "1e9", "9".repeat(15), "253402300800"],
  },
  retries: {
    good: [
      ["0", { retries: 0 }],
      ["007", { retries: 7 }],
    ],
    bad: ["", "-1", "1.5", "1e1", "three", "0x1", "9".repeat(21)],
  },
  "retry-delay": {
    good: [["pow(2, retried) * 1000", { retryDelay: "pow(2, retried) * 1000" }]],
    bad: ["", "1 +", "process.exit()", "(".repeat(300)],
  },
  timeout: {
    good: [
      ["30", { timeout: 30_000 }],
      ["2m", { timeout: 120_000 }],
    ],
    bad: ["", "0", "0s", "-1", "fast"],
  },
  "ack-timeout": {
    good: [
      ["2h", { ackTimeout: 7_200_000 }],
      ["1", { ackTimeout: 1_000 }],
    ],
    bad: ["", "0", "999ms", "13h", "-1", "later"],
  },
  "header-forward": {
    good: [
      ["true", {}],
      ["false", {}],
    ],
    bad: ["", "1", "yes"],
  },
  "flow-control-key": {
    good: [["shop 7", { flowControl: { key: "shop 7", parallelism: 1, rate: null, period: null } }]],
    bad: ["", "x".repeat(513)],
  },
  "flow-control-value": {
    good: [
      ["parallelism=3", { flowControl: { key: "k", parallelism: 3, rate: null, period: null } }],
      [" rate=5 , period = 1m", { flowControl: { key: "k", parallelism: null, rate: 5, period: 60_000 } }],
      [
        "period=7d,rate=5,parallelism=2",
        { flowControl: { key: "k", parallelism: 2, rate: 5, period: 7 * day } },
      ],
      ["period=1m", { flowControl: { key: "k", parallelism: null, rate: null, period: 60_000 } }],
      ["rate=5,period=30", { flowControl: { key: "k", parallelism: null, rate: 5, period: 30_000 } }],
    ],
    bad: [
      "",
      "3",
      "parallelism",
      "parallelism=0",
      "parallelism=-1",
      "rate=1.5",
      "rate=1,rate=2",
      "rate=5,period=0",
      "speed=9",
      "rate=1,",
    ],
  },
  callback: {
    good: [
      [
        "https://c.example/x?y",
        { callback: { url: "https://c.example/x?y", ...noCallback } } as Partial<MessageInput>,
      ],
    ],
    bad: [
      "",
      "c.example",
      "ftp://c.example",
      "https://",
      "https:///x",
      "http://a b/",
      `https://c.example/${"x".repeat(17_000)}`,
    ],
  },
  "failure-callback": {
    good: [
      [
        "http://c.example",
        { failureCallback: { url: "http://c.example", ...noCallback } } as Partial<MessageInput>,
      ],
    ],
    bad: ["", "/relative", "javascript:alert(1)"],
  },
  "deduplication-id": {
    good: [["order 1", { deduplication: expect.stringMatching(/^i:[0-9a-f]{64}$/) }]],
    bad: ["", "x".repeat(513)],
  },
  "deduplication-window": {
    good: [
      ["1s", { deduplication: expect.stringMatching(/^i:/) }],
      ["90d", { deduplication: expect.stringMatching(/^i:/) }],
    ],
    bad: ["", "0", "7776001", "soon"],
  },
  "content-based-deduplication": {
    good: [
      ["true", { deduplication: expect.stringMatching(/^c:[0-9a-f]{64}$/) }],
      ["false", { deduplication: null }],
      ["True", { deduplication: expect.stringMatching(/^c:[0-9a-f]{64}$/) }],
      ["False", { deduplication: null }],
    ],
    bad: ["", "maybe"],
  },
  label: {
    good: [
      [" a , b,,a", { labels: ["a", "b"] }],
      ["\u00fc", { labels: ["\u00fc"] }],
    ],
    bad: ["x".repeat(513), Array.from({ length: 33 }, (_, n) => n).join(",")],
  },
  "redact-fields": {
    good: [
      ["body, header[x-a]", { redaction: { body: true, headers: ["X-A"] } }],
      ["headers", { redaction: { body: false, headers: true } }],
    ],
    bad: ["", "everything", "header[]", "body;headers"],
  },
  "keep-response": {
    good: [
      ["true", { keepResponse: true }],
      ["false", {}],
    ],
    bad: ["", "yes", "1"],
  },
  "hide-headers": {
    good: [
      ["true", { hideHeaders: true }],
      ["false", {}],
    ],
    bad: ["", "yes", "1"],
  },
  // This service sends the header with its deliveries, so that one server can deliver to another.
  "schedule-id": { good: [["daily.1", { scheduleId: null }]], bad: ["", "a b", "x".repeat(513)] },
};

/** The other settings that a setting requires. */
const beside: { [N in MessageSettingName]?: (readonly [name: string, text: string])[] } = {
  "deduplication-window": [["deduplication-id", "1"]],
  "flow-control-key": [["flow-control-value", "parallelism=1"]],
  "flow-control-value": [["flow-control-key", "k"]],
};

const names = Object.keys(cases) as (keyof typeof cases)[];
// Names of headers arrive in lower case here; test/api/server/destination.test.ts sends them over a socket.
const ways = ["Svc", "Upstash"].flatMap((prefix) => [
  { how: `header ${prefix}-`, written: (name: string) => canonicalName(`${prefix}-${name}`), byQuery: false },
  {
    how: `header ${prefix}- in upper case`,
    written: (name: string) => `${prefix}-${name}`.toUpperCase(),
    byQuery: false,
  },
  {
    how: `parameter ${prefix.toLowerCase()}-`,
    written: (name: string) => `${prefix}-${name}`.toLowerCase(),
    byQuery: true,
  },
]);

test("every setting of messages has its cases", () => {
  const all = Object.entries(settingRows).filter(([, row]) => row.onlyForSchedules === undefined);
  expect(names.toSorted()).toEqual(all.map(([name]) => name).toSorted());
});

const server = shareTestServer();
// Otherwise a message would be a duplicate of that of another test.
beforeEach(() => server().memory.tables.deduplications.clear());

describe.each(ways)("as $how", ({ written, byQuery }) => {
  const publish = async (all: readonly (readonly [name: string, text: string])[]) => {
    const { ask, store } = server();
    const url = "https://d.example/path";
    const query = byQuery
      ? `?${all.map(([name, text]) => `${written(name)}=${encodeURIComponent(text)}`).join("&")}`
      : "";
    const latin1 = (text: string): string => Buffer.from(text).toString("latin1");
    const headers = byQuery
      ? {}
      : Object.fromEntries(all.map(([name, text]) => [written(name), latin1(text)]));
    const reply = await ask("POST", `/v2/publish/${url}${query}`, { headers, body: "x" });
    const view = reply.status === 200 ? await store.read.message("acc_1", reply.body.messageId) : null;
    return { reply, envelope: view?.message, url };
  };

  test.each(names.flatMap((name) => cases[name].good.map(([text, expected]) => ({ name, text, expected }))))(
    "$name: $text",
    async ({ name, text, expected }) => {
      const { reply, envelope, url } = await publish([[name, text], ...(beside[name] ?? [])]);
      expect(reply).toMatchObject({ status: 200 });
      expect(envelope).toMatchObject({ url, ...expected });
    },
  );

  test.each(
    names.flatMap((name) => cases[name].bad.map((text) => ({ name, text, shown: text.slice(0, 20) }))),
  )("$name: $shown is refused, naming the setting", async ({ name, text }) => {
    const { reply } = await publish([[name, text], ...(beside[name] ?? [])]);
    expect(reply).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(new RegExp(`^${written(name)}: \\S`, "i")) },
    });
  });

  test("callbacks have their own settings and callbacks", async () => {
    const { envelope } = await publish([
      ["callback", "https://c.example"],
      ["callback-method", "PUT"],
      ["callback-retries", "1"],
      ["callback-forward-x-a", "1"],
      ["callback-forward-content-type", "text/plain"],
      ["callback-failure-callback", "https://cf.example"],
      ["callback-failure-callback-timeout", "5s"],
      ["failure-callback", "https://f.example"],
      ["failure-callback-retry-delay", "1000"],
      ["callback-delay", "1m"],
      ["callback-label", "a,b"],
      ["callback-failure-callback-delay", "2m"],
      ["failure-callback-delay", "90"],
      ["failure-callback-label", "c"],
    ]);
    expect(envelope).toMatchObject({
      callback: {
        url: "https://c.example",
        method: "PUT",
        retries: 1,
        headers: expect.arrayContaining([
          ["X-A", "1"],
          ["Content-Type", "text/plain"],
        ]),
        delay: 60_000,
        labels: ["a", "b"],
        failureCallback: { url: "https://cf.example", timeout: 5_000, delay: 120_000 },
      },
      failureCallback: {
        url: "https://f.example",
        retryDelay: "1000",
        method: "POST",
        delay: 90_000,
        labels: ["c"],
      },
    });
  });

  const callback = ["callback", "https://c.example"] as const;
  test.each([
    [
      "a callback with not-before",
      "callback-not-before",
      [callback, ["callback-not-before", "1"]],
      "not valid for callbacks; use Callback-Delay to delay a callback",
    ],
    [
      "a delay without a callback",
      "callback-delay",
      [["callback-delay", "1s"]],
      "-callback-delay: requires ",
    ],
    [
      "a malformed delay of a callback",
      "callback-delay",
      [callback, ["callback-delay", "soon"]],
      "is not a duration",
    ],
    [
      "a callback's setting without a callback",
      "callback-retries",
      [["callback-retries", "1"]],
      "-callback-retries: requires ",
    ],
    [
      "a failure callback's setting without a failure callback",
      "failure-callback-forward-a",
      [["failure-callback-forward-a", "1"]],
      "-failure-callback-forward-a: requires ",
    ],
    ["a key without limits", "flow-control-key", [["flow-control-key", "k"]], "requires Flow-Control-Value"],
    [
      "limits without a key",
      "flow-control-value",
      [["flow-control-value", "rate=1"]],
      "requires Flow-Control-Key",
    ],
    [
      "a callback's key without limits",
      "callback-flow-control-key",
      [callback, ["callback-flow-control-key", "k"]],
      "requires Flow-Control-Value",
    ],
    [
      "a queue",
      "queue-name",
      [["queue-name", "q"]],
      "only valid for schedules; use POST /v2/enqueue/{queue}/{destination} to send",
    ],
    [
      "a queue of a callback",
      "callback-queue-name",
      [callback, ["callback-queue-name", "q"]],
      "not valid for callbacks",
    ],
    [
      "a workflow setting without a run",
      "workflow-init",
      [["workflow-init", "true"]],
      "only valid for messages of a workflow run",
    ],
    [
      "features without a run",
      "feature-set",
      [["feature-set", "x"]],
      "only valid for messages of a workflow run",
    ],
    [
      "a run only in a callback",
      "callback-workflow-runid",
      [callback, ["callback-workflow-runid", "x"]],
      "only valid for messages of a workflow run",
    ],
    ["a header without a name", "forward-", [["forward-", "1"]], "not the name of an HTTP header"],
    [
      "callbacks nested too deep",
      "callback-callback-callback",
      [["callback-callback-callback", "https://x.example"]],
      "2 levels",
    ],
  ] as const)("%s is refused", async (...[, name, all, problem]) => {
    const { reply } = await publish(all);
    expect(reply.status).toBe(400);
    expect(reply.body.error).toContain(problem);
    expect(reply.body.error.toLowerCase().startsWith(`${written(name).toLowerCase()}: `)).toBe(true);
  });

  test("the settings that clients send about themselves are accepted and ignored", async () => {
    const { reply, envelope } = await publish([
      ["telemetry-sdk", "x"],
      ["telemetry-runtime", "node"],
      ["message-id", "msg_1"],
      ["signature", "jwt"],
      ["schedule-id", "scd_1"],
      ["topic-name", "group"],
    ]);
    expect(reply.status).toBe(200);
    expect(reply.headers).not.toHaveProperty("waypost-ignored");
    expect(envelope?.headers).toEqual([]);
  });
});
