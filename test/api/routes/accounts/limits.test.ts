import { beforeEach, describe, expect, test } from "vitest";
import { limitNames } from "../../../../src/engine/core/accounts/plans.ts";
import type { AccountLimits, LimitName } from "../../../../src/engine/core/model/accountTerms.ts";
import { createTestServer, otherToken } from "../../testServer.ts";
import type { TestServer, Reply } from "../../testServer.ts";

const second = 1000;

/** Small values for every limit of an account. Durations are in milliseconds. */
const small: AccountLimits = {
  messageBytes: 5,
  retries: 1,
  delay: 10 * second,
  timeout: 5 * second,
  parallelism: 2,
  queues: 1,
  schedules: 1,
  groups: 1,
  endpoints: 1,
  sources: 1,
  tokens: 1,
  deadLetterRetention: 60 * second,
  logRetention: 30 * second,
  auditRetention: 30 * second,
  globalParallelism: 2,
  deadLetters: 1,
  logEntries: 1,
  auditEntries: 1,
  requestsPerSecond: 8,
  requestsPerDay: 1_000_000,
  requestsPerDayHard: 1_000_000,
  storageBytes: 1_000_000,
};

let server: TestServer;
beforeEach(async () => {
  server = await createTestServer();
  await server.store.execute("changeAccount", { account: "acc_1", change: { plan: "free", limits: small } });
});

type Ask = (
  method: string,
  url: string,
  more?: { headers?: Record<string, string>; body?: string },
) => Promise<Reply>;

const to = "/v2/publish/https://e.example/";
const settings = (headers: Record<string, string>) => (ask: Ask) => ask("POST", to, { headers });
const made =
  (method: string, paths: readonly string[], more: Parameters<Ask>[2] = {}) =>
  async (ask: Ask) => {
    let reply = await ask(method, paths[0] ?? "", more);
    for (const path of paths.slice(1)) reply = await ask(method, path, more);
    return reply;
  };
const cron = { headers: { "svc-cron": "0 0 1 1 *" } };
const endpoints = (...hosts: string[]) => ({
  body: JSON.stringify({ endpoints: hosts.map((host) => ({ url: `https://${host}.example` })) }),
});

/** A request beyond each limit that refuses requests, with the status and the error. */
const beyond: readonly (readonly [
  limit: LimitName,
  does: string,
  status: number,
  said: RegExp,
  act: (ask: Ask) => Promise<Reply>,
])[] = [
  [
    "messageBytes",
    "a body",
    413,
    /^body: 6 bytes exceeds the limit of 5/,
    (ask) => ask("POST", to, { body: "123456" }),
  ],
  ["retries", "retries", 412, /^retries: 2 exceeds the limit of 1/, settings({ "svc-retries": "2" })],
  ["delay", "a delay", 412, /^delay: 11s exceeds the limit of 10s/, settings({ "svc-delay": "11s" })],
  [
    "delay",
    "the delay of a callback",
    412,
    /^delay: 11s exceeds the limit of 10s/,
    settings({ "svc-callback": "https://c.example", "svc-callback-delay": "11s" }),
  ],
  ["timeout", "a timeout", 412, /^timeout: 6s exceeds the limit of 5s/, settings({ "svc-timeout": "6s" })],
  [
    "retries",
    "the retries of a callback",
    412,
    /exceeds the limit of 1/,
    settings({ "svc-callback": "https://c.example", "svc-callback-retries": "2" }),
  ],
  [
    "parallelism",
    "a queue",
    412,
    /^parallelism: 3 exceeds the limit of 2/,
    (ask) => ask("POST", "/v2/queues", { body: '{"queueName":"q","parallelism":3}' }),
  ],
  [
    "queues",
    "a queue by enqueue",
    412,
    /^queues: there are 1, and the limit is 1/,
    made(
      "POST",
      ["a", "b"].map((q) => `/v2/enqueue/${q}/https://e.example/`),
    ),
  ],
  [
    "schedules",
    "a schedule",
    412,
    /^schedules: there are 1, and the limit is 1/,
    made("POST", ["/v2/schedules/https://e.example/", "/v2/schedules/https://e.example/"], cron),
  ],
  [
    "groups",
    "a URL group",
    412,
    /^groups: there are 1, and the limit is 1/,
    made(
      "POST",
      ["a", "b"].map((g) => `/v2/topics/${g}/endpoints`),
      endpoints("x"),
    ),
  ],
  [
    "endpoints",
    "endpoints",
    412,
    /^endpoints: 2 in the URL group g exceeds the limit of 1/,
    (ask) => ask("POST", "/v2/topics/g/endpoints", endpoints("x", "y")),
  ],
  [
    "sources",
    "a source",
    412,
    /^sources: there are 1, and the limit is 1/,
    made("POST", ["/v2/sources", "/v2/sources"], { body: '{"destination":"https://e.example"}' }),
  ],
  [
    "tokens",
    "a token",
    412,
    /^tokens: there are 1, and the limit is 1/,
    made("POST", ["/v2/tokens", "/v2/tokens"], { body: '{"verbs":["read"]}' }),
  ],
  [
    "requestsPerSecond",
    "reads",
    429,
    /^requests: limit of 8 per second exceeded/,
    made(
      "GET",
      Array.from({ length: 9 }, () => "/v2/queues"),
    ),
  ],
];

const flagOf = (name: string): string => name.replace(/[A-Z]/g, (capital) => `-${capital.toLowerCase()}`);

describe.for(beyond)("%s: %s beyond the limit", ([limit, , status, said, act]) => {
  test("is refused, with the limit and how to raise it", async () => {
    const reply = await act((method, url, more) => server.ask(method, url, more));
    expect(reply).toMatchObject({ status, body: { error: expect.stringMatching(said) } });
    expect(reply.body.error).toContain(`waypost account limits acc_1 --${flagOf(limit)} <value>`);
  });

  test("is accepted from another account", async () => {
    const reply = await act((method, url, more) => server.ask(method, url, { ...more, token: otherToken }));
    expect(reply.status).toBeLessThan(300);
  });
});

test("a request within all limits is accepted", async () => {
  const headers = { "svc-retries": "1", "svc-delay": "10s", "svc-timeout": "5s" };
  expect((await server.ask("POST", to, { headers, body: "12345" })).status).toBe(200);
});

describe("deliveries beyond the limit of deliveries in flight", () => {
  test("wait and are not refused; those of another account are sent", async () => {
    const ids: string[] = [];
    for (const host of ["a", "b", "c", "d"])
      ids.push((await server.ask("POST", `/v2/publish/https://${host}.example/`)).body.messageId);
    const inFlight = server.deliveries.splice(0);
    expect(inFlight).toHaveLength(2);
    expect((await server.ask("GET", "/v2/globalParallelism")).body).toEqual({
      parallelismMax: 2,
      parallelismCount: 2,
    });
    const { waitingOn } = (await server.ask("GET", `/v2/messages/${ids[3]}`)).body;
    expect(waitingOn).toMatchObject([
      {
        reason: "account",
        used: 2,
        limit: 2,
        position: 1,
        text: expect.stringContaining("--global-parallelism"),
      },
    ]);
    for (const host of ["a", "b", "c", "d"])
      await server.ask("POST", `/v2/publish/https://${host}.example/`, { token: otherToken });
    expect(server.deliveries.splice(0)).toHaveLength(4);
    expect((await server.ask("GET", "/v2/globalParallelism", { token: otherToken })).body).toEqual({
      parallelismMax: 0,
      parallelismCount: 4,
    });
    const [first] = inFlight;
    if (first) await server.settle(first, { status: 200 });
    expect(server.deliveries.map(({ message }) => message.id)).toEqual([ids[2]]);
  });
});

test("deliveries beyond the limit for one endpoint wait; those to other endpoints do not", async () => {
  await server.store.execute("changeAccount", {
    account: "acc_1",
    change: { limits: { ...small, globalParallelism: 3 } },
  });
  const publish = async (path: string): Promise<string> =>
    String((await server.ask("POST", `/v2/publish/https://gateway.example:8443/${path}`)).body.messageId);
  const [, , third, fourth] = [
    await publish("a"),
    await publish("a"),
    await publish("a"),
    await publish("a"),
  ];
  const elsewhere = await publish("b");
  const inFlight = server.deliveries.splice(0);
  expect(inFlight).toHaveLength(3);
  expect(inFlight.at(-1)?.message.id).toBe(elsewhere);
  expect((await server.ask("GET", `/v2/messages/${fourth}`)).body.waitingOn).toMatchObject([
    {
      reason: "account-endpoint",
      endpoint: "https://gateway.example:8443/a",
      used: 2,
      limit: 2,
      position: 1,
      text: expect.stringContaining(
        'raise the limit with "waypost account limits acc_1 --parallelism <value>"',
      ),
    },
  ]);
  const [first] = inFlight;
  if (first) await server.settle(first, { status: 200 });
  expect(server.deliveries.map(({ message }) => message.id)).toEqual([third]);
});

test("the account record shows the limits", async () => {
  const authorization = `Basic ${Buffer.from("acc_1:pass").toString("base64")}`;
  const { body } = await server.ask("GET", "/v2/svc/user/acc_1", { token: null, headers: { authorization } });
  expect(body).toMatchObject({
    max_message_size: 5,
    max_retries: 1,
    max_delay: 10,
    timeout: 5,
    max_parallelism: 2,
    max_queues: 1,
    max_schedules: 1,
    max_topics: 1,
    max_endpoints_per_topic: 1,
    max_dlq_retention_time_milis: 60_000,
    max_global_parallelism: 2,
    max_dlq_size: 1,
    max_events_size: 1,
    max_requests_per_second: 8,
  });
});

/**
 * Limits that refuse no request, or not at once. They are enforced in
 * `engine/core/admission/accountLimits.ts`, `engine/core/commands/trim.ts`,
 * `engine/upkeep/trimHistory.ts` and `engine/upkeep/weighStorage.ts`.
 */
const others: readonly LimitName[] = [
  "globalParallelism",
  "deadLetters",
  "logEntries",
  "auditEntries",
  "deadLetterRetention",
  "logRetention",
  "auditRetention",
  "requestsPerDay",
  "requestsPerDayHard",
  "storageBytes",
];

test("every limit is enforced in one of these ways", () => {
  const known = new Set([...beyond.map(([name]) => name), ...others]);
  expect(limitNames.filter((name) => !known.has(name))).toEqual([]);
});
