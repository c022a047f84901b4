import { describe, expect, test } from "vitest";
import { makeInput } from "../../../engine/store/storeFixture.ts";
import { createTestServer, otherToken } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

const names = ["queue", "key", "schedule", "group", "label", "plain"] as const;
type Name = (typeof names)[number];

/** Publishes one message of each kind, one second apart. The names contain characters that need escaping. */
async function publishSix(settings: { delay: number | null }) {
  const server = await createTestServer();
  await server.ask("POST", "/v2/topics/g.r_o-up/endpoints", {
    body: JSON.stringify({ endpoints: [{ url: "https://group.example/" }] }),
  });
  const flowControl = { key: "key:1", parallelism: 3, rate: null, period: null };
  const inputs = {
    queue: { queue: "q.1" },
    key: { flowControl },
    schedule: { scheduleId: "scd_1" },
    group: { group: "g.r_o-up", url: "" },
    label: { labels: ["a b%20", "a", "red"] },
    plain: { url: "https://plain.example/p?q=1", callerIp: "192.0.2.9" },
  } as const;
  const ids = new Map<string, Name>();
  for (const name of names) {
    server.clock.now += 1_000;
    const input = makeInput({ ...settings, retries: 0, ...inputs[name] });
    const [result] = await server.store.execute("publish", { account: "acc_1", inputs: [input] });
    if (!result || "refused" in result) throw new Error(JSON.stringify(result));
    ids.set("each" in result ? (result.each[0]?.messageId ?? "") : result.messageId, name);
  }
  return { server, ids };
}

/** Publishes the six messages and fails each with its own status, one second apart. */
async function failSix() {
  const { server, ids } = await publishSix({ delay: null });
  const statusOf = { queue: 500, key: 501, schedule: 502, group: 503, label: 504, plain: null };
  for (const delivery of server.deliveries.splice(0)) {
    server.clock.now += 1_000;
    await server.settle(delivery, {
      status: statusOf[ids.get(delivery.message.id) ?? "plain"],
      error: "gone",
    });
  }
  return { server, ids };
}

type QueryCase = [query: string, expected: Name[]];

const commonCases: QueryCase[] = [
  ["queueName=q.1", ["queue"]],
  ["queueName=q", []],
  ["queueName=q.1,other", ["queue"]],
  ["flowControlKey=key:1", ["key"]],
  ["flowControlKey=key:1&queueName=q.1", []],
  ["scheduleId=scd_1&scheduleId=scd_2", ["schedule"]],
  ["topicName=g.r_o-up", ["group"]],
  ["topicName=g.r_o-up&url=https://group.example/", ["group"]],
  ["url=https://plain.example/p%3Fq=1", ["plain"]],
  ["url=https://plain.example/p", []],
  ["url=nothing", []],
  ["callerIp=192.0.2.9", ["plain"]],
  ["callerIP=192.0.2.9", ["plain"]],
  ["callerIp=192.0.2.9&label=red", []],
  ["label=a+b%2520", ["label"]],
  ["label=a", ["label"]],
  ["label=a+b", []],
  ["label=red,a", ["label"]],
  ["label=red&label=blue&url=https://one.example/hook", ["label"]],
  [`label=red,${Array.from({ length: 60 }, (_, n) => `x${n}`).join(",")}`, ["label"]],
];

const listNames = (
  ids: Map<string, Name>,
  entries: readonly { messageId: string }[],
): (Name | undefined)[] => [...new Set(entries.map(({ messageId }) => ids.get(messageId)))];

describe("cancelling many messages", () => {
  test.each<QueryCase>([
    ...commonCases,
    ["host=plain.example,group.example", ["group", "plain"]],
    ["host=ONE.example&path=/hook", ["queue", "key", "schedule", "label"]],
    ["path=/p", ["plain"]],
    ["host=none.example", []],
    ["host=one.example&label=red", ["label"]],
  ])("with %s cancels %j", async (query, expected) => {
    const { server, ids } = await publishSix({ delay: 3_600_000 });
    expect(await server.ask("DELETE", `/v2/messages?${query}`, { token: otherToken })).toMatchObject({
      body: { cancelled: 0 },
    });
    expect((await server.ask("DELETE", `/v2/messages?${query}`)).body).toEqual({
      cancelled: expected.length,
    });
    const { body } = await server.ask("GET", "/v2/logs?state=CANCELLED&order=earliestFirst");
    expect(listNames(ids, body.logs)).toEqual(expected);
    // A second request finds no rows of the cancelled messages.
    expect((await server.ask("DELETE", `/v2/messages?${query}`)).body).toEqual({ cancelled: 0 });
    expect((await server.ask("DELETE", "/v2/messages")).body).toEqual({ cancelled: 6 - expected.length });
  });

  test("cancels at most `count` messages that pass a filter, oldest first", async () => {
    const { server, ids } = await publishSix({ delay: 3_600_000 });
    expect((await server.ask("DELETE", "/v2/messages?host=one.example&count=2")).body).toEqual({
      cancelled: 2,
    });
    const { body } = await server.ask("GET", "/v2/logs?state=CANCELLED&order=earliestFirst");
    expect(listNames(ids, body.logs)).toEqual(["queue", "key"]);
  });
});

describe("dead letters", () => {
  const deadLetterCases: QueryCase[] = [
    ...commonCases,
    ["responseStatus=504", ["label"]],
    ["responseStatus=500,501,599", ["queue", "key"]],
    ["responseStatus=500&queueName=q.1", ["queue"]],
    ["responseStatus=501&queueName=q.1", []],
  ];

  test.each(deadLetterCases)("with %s are %j, in either order", async (query, expected) => {
    const { server, ids } = await failSix();
    const list = async (more = "") =>
      listNames(ids, (await server.ask("GET", `/v2/dlq?${query}${more}`)).body.messages);
    expect(await list()).toEqual(expected);
    expect(await list("&order=latestFirst")).toEqual(expected.toReversed());
    expect((await server.ask("GET", `/v2/dlq?${query}`, { token: otherToken })).body).toEqual({
      messages: [],
    });
  });

  test.each(deadLetterCases)("with %s can be retried and deleted: %j", async (query, expected) => {
    const { server } = await failSix();
    const outcomes = (await server.ask("GET", `/v2/dlq?${query}`)).body.messages;
    const { status, body } = await server.ask("POST", `/v2/dlq/retry?${query}`);
    expect({ status, body }).toMatchObject({ status: 201, body: { cursor: "" } });
    expect(body.responses.length).toBe(expected.length);
    expect((await server.ask("GET", `/v2/dlq?${query}`)).body).toEqual({ messages: [] });
    for (const [n, delivery] of server.deliveries.splice(0).entries()) {
      await server.settle(delivery, { status: outcomes[n].responseStatus ?? null, error: "gone" });
    }
    expect((await server.ask("DELETE", `/v2/dlq?${query}`)).body).toEqual({ deleted: expected.length });
    expect((await server.ask("GET", `/v2/dlq?${query}`)).body).toEqual({ messages: [] });
  });

  test("are found by the id of the message", async () => {
    const { server, ids } = await failSix();
    for (const [id, name] of ids) {
      expect(listNames(ids, (await server.ask("GET", `/v2/dlq?messageId=${id}`)).body.messages)).toEqual([
        name,
      ]);
    }
  });

  test("are paged by a filter without gaps while entries are deleted", async () => {
    const { server, ids } = await failSix();
    const first = (await server.ask("GET", "/v2/dlq?url=https://one.example/hook&count=2")).body;
    expect(listNames(ids, first.messages)).toEqual(["queue", "key"]);
    await server.ask("DELETE", `/v2/dlq/${first.messages[0].dlqId}`);
    await server.ask("DELETE", `/v2/dlq/${first.messages[1].dlqId}`);
    const second = (
      await server.ask("GET", `/v2/dlq?url=https://one.example/hook&count=2&cursor=${first.cursor}`)
    ).body;
    expect(listNames(ids, second.messages)).toEqual(["schedule", "label"]);
    expect(second).not.toHaveProperty("cursor");
  });
});

describe("the log", () => {
  test.each<QueryCase>([
    ...commonCases,
    ["host=plain.example,group.example", ["group", "plain"]],
    ["path=/p", ["plain"]],
    ["state=FAILED&label=red", ["label"]],
    ["state=ERROR&queueName=q.1,none", ["queue"]],
    ["state=CANCELLED&queueName=q.1", []],
    ["state=RETRY", []],
    ["state=CREATED&flowControlKey=key:1", ["key"]],
  ])("with %s lists the entries of %j, in either order", async (query, expected) => {
    const { server, ids } = await failSix();
    const list = async (more: string) => (await server.ask("GET", `/v2/logs?${query}${more}`)).body.logs;
    const forwards = await list("&order=earliestFirst");
    expect(listNames(ids, forwards)).toEqual(expected);
    expect(await list("&order=latestFirst")).toEqual(forwards.toReversed());
    const perMessage = query.includes("state") ? 1 : 4;
    expect(forwards.length).toBe(expected.length * perMessage);
    const paged: unknown[] = [];
    for (let cursor: string | undefined = ""; cursor !== undefined;) {
      const { body } = await server.ask(
        "GET",
        `/v2/logs?${query}&order=earliestFirst&count=1${cursor && `&cursor=${cursor}`}`,
      );
      paged.push(...body.logs);
      cursor = body.cursor;
    }
    expect(paged).toEqual(forwards);
  });

  test("of many messages by id is one list in order of time", async () => {
    const { server, ids } = await failSix();
    const all = (await server.ask("GET", "/v2/logs?count=1000")).body.logs;
    expect((await server.ask("GET", `/v2/logs?messageIds=${[...ids.keys()].join(",")}`)).body.logs).toEqual(
      all,
    );
    const some = [...ids.keys()].slice(1, 3);
    const paged: unknown[] = [];
    for (let cursor: string | undefined = ""; cursor !== undefined;) {
      const { body } = await server.ask(
        "GET",
        `/v2/logs?messageIds=${some.join("&messageId=")}&count=3${cursor && `&cursor=${cursor}`}`,
      );
      paged.push(...body.logs);
      cursor = body.cursor;
    }
    expect(paged).toEqual(all.filter(({ messageId }: { messageId: string }) => some.includes(messageId)));
  });
});

describe("invalid list requests", () => {
  const lists: [string, string][] = [
    ["GET", "/v2/dlq"],
    ["DELETE", "/v2/dlq"],
    ["POST", "/v2/dlq/retry"],
    ["GET", "/v2/logs"],
    ["GET", "/v2/events"],
    ["DELETE", "/v2/messages"],
  ];
  const ask = ({ ask: put }: TestServer, [method, url]: [string, string], query: string) =>
    put(method, `${url}?${query}`);

  test.each(lists)("%s %s is refused with the reason", async (...list) => {
    const server = await createTestServer();
    const ids = Array.from({ length: 10_000 }, (_, n) => `msg_${n}`).join(",");
    const idName = list[1].startsWith("/v2/dlq") ? "dlqIds" : "messageIds";
    for (const [query, error] of [
      [`${idName}=${ids}`, `${idName}: is longer than 16384 characters`],
      [
        ids.replaceAll(",", `&${idName}=`).replace("msg_0", `${idName}=msg_0`),
        `${idName}: has more than 1000 values`,
      ],
      [`label=${"x".repeat(1_000_000)}`, "label: is longer than 16384 characters"],
      ["count=-1", "count: is not a whole number"],
      ["count=0", "count: must be at least 1"],
      ["fromDate=2&toDate=1", "fromDate: is later than toDate; swap them"],
      ["fromDate=-2", "fromDate: is not a whole number"],
      ["toDate=1e5", "toDate: is not a whole number"],
      ["workflowRunI=x", /^workflowRunI: unknown parameter/],
      ["__proto__=x", /^__proto__: unknown parameter/],
    ] as const) {
      const matching = typeof error === "string" ? error : expect.stringMatching(error);
      expect(await ask(server, list, query), query.slice(0, 50)).toMatchObject({
        status: 400,
        body: { error: matching },
      });
    }
  });

  test("dates beyond the range of ids neither fail nor match anything", async () => {
    const { server } = await failSix();
    for (const to of [128_063_081_718_017, 999_999_999_999_999]) {
      expect((await server.ask("GET", `/v2/dlq?toDate=${to}`)).body.messages.length).toBe(6);
      expect((await server.ask("GET", `/v2/logs?toDate=${to}`)).body.logs.length).toBe(24);
      expect((await server.ask("GET", `/v2/logs?fromDate=${to}`)).body.logs.length).toBe(0);
      expect((await server.ask("GET", `/v2/dlq?fromDate=${to}`)).body.messages.length).toBe(0);
      expect((await server.ask("DELETE", `/v2/messages?fromDate=${to}`)).body).toEqual({ cancelled: 0 });
    }
  });

  test("a cursor of another list is refused; a cursor of another account reveals nothing", async () => {
    const { server } = await failSix();
    const deadLetterCursor = (await server.ask("GET", "/v2/dlq?count=1")).body.cursor;
    const logCursor = (await server.ask("GET", "/v2/logs?count=1")).body.cursor;
    for (const wrong of [
      logCursor,
      "x",
      "%00",
      "-1",
      "1800000000000",
      "1800000000000-1-1",
      "'--",
      "9".repeat(5_000),
    ]) {
      for (const list of lists.slice(0, 3))
        expect(await ask(server, list, `cursor=${wrong}`), wrong).toMatchObject({
          status: 400,
          body: { error: "cursor: unknown; use the cursor of the previous page" },
        });
    }
    for (const wrong of [
      deadLetterCursor,
      "x",
      "%00",
      "1800000000000-20-msg_1",
      "1800000000000-01-",
      "1-09-~",
      "9".repeat(5_000),
    ]) {
      for (const list of lists.slice(3, 5))
        expect(await ask(server, list, `cursor=${wrong}`), wrong).toMatchObject({
          status: 400,
          body: { error: "cursor: unknown; use the cursor of the previous page" },
        });
    }
    expect(
      (await server.ask("GET", `/v2/dlq?cursor=${deadLetterCursor}`, { token: otherToken })).body,
    ).toEqual({
      messages: [],
    });
    expect((await server.ask("GET", `/v2/logs?cursor=${logCursor}`, { token: otherToken })).body).toEqual({
      logs: [],
      events: [],
    });
    expect((await server.ask("GET", "/v2/dlq")).body.messages.length).toBe(6);
  });
});

test("a bulk action by a flow-control key with a comma affects only that key", async () => {
  const server = await createTestServer();
  for (const key of ["berlin", "berlin,de", "de"]) {
    const headers = { "svc-flow-control-key": key, "svc-flow-control-value": "rate=5", "svc-delay": "1h" };
    await server.ask("POST", "/v2/publish/https://e.example/", { headers });
    await server.ask("POST", "/v2/publish/https://e.example/", {
      headers: { ...headers, "svc-delay": "0s", "svc-retries": "0" },
    });
  }
  for (const delivery of server.deliveries.splice(0)) await server.settle(delivery, { status: 500 });
  const cancelled = await server.ask("DELETE", "/v2/messages?flowControlKey=berlin%2Cde");
  expect(cancelled.body).toEqual({ cancelled: 1 });
  expect((await server.ask("DELETE", "/v2/dlq?flowControlKey=berlin%2Cde")).body).toEqual({ deleted: 1 });
  expect((await server.ask("POST", "/v2/dlq/retry?flowControlKey=berlin%2Cde")).body).toMatchObject({
    responses: [],
  });
  expect((await server.ask("DELETE", "/v2/messages?flowControlKey=berlin&flowControlKey=de")).body).toEqual({
    cancelled: 2,
  });
  expect((await server.ask("GET", "/v2/dlq?flowControlKey=berlin,de")).body.messages).toHaveLength(2);
});

test("a parameter given differently in the query and in the body is refused", async () => {
  const { server } = await publishSix({ delay: 60_000 });
  const cancel = (query: string, body: unknown) =>
    server.ask("DELETE", `/v2/messages${query}`, { body: JSON.stringify(body) });
  expect(await cancel("?label=red", { label: "none" })).toMatchObject({
    status: 400,
    body: { error: "label: given in the query and in the body with different values; remove one" },
  });
  expect((await cancel("?label=red", { label: ["red"] })).body).toEqual({ cancelled: 1 });
});
