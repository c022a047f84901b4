import { describe, expect, test } from "vitest";
import { testTime, createTestServer } from "../testServer.ts";

describe("settings from several places", () => {
  const url = "/v2/publish/https://d.example/path";
  const publish = async (query: string, headers: Record<string, string> = {}) => {
    const { ask, store } = await createTestServer();
    const reply = await ask("POST", `${url}${query}`, { headers, body: "x" });
    const view = reply.status < 300 ? await store.read.message("acc_1", reply.body.messageId) : null;
    return { reply, envelope: view?.message };
  };

  test("a header takes precedence over a parameter, also under the other brand", async () => {
    expect(
      (await publish("?svc-retries=1&upstash-timeout=1s", { "upstash-retries": "2", "svc-timeout": "2s" }))
        .envelope,
    ).toMatchObject({
      retries: 2,
      timeout: 2_000,
    });
  });

  test("the same value under both brands counts as one setting", async () => {
    expect((await publish("", { "upstash-retries": "2", "svc-retries": "2" })).envelope).toMatchObject({
      retries: 2,
      brand: "svc",
    });
  });

  test.each([
    ["?svc-retries=1&svc-retries=2", {}, "svc-retries: given twice with different values; remove one"],
    [
      "?svc-retries=1&upstash-retries=2",
      {},
      "upstash-retries: also given as svc-retries with a different value; remove one",
    ],
    [
      "",
      { "Svc-Retries": "1", "Upstash-Retries": "2" },
      "upstash-retries: also given as svc-retries with a different value; remove one",
    ],
    ["?svc-label=%zz", {}, "svc-label: the percent-encoding is malformed or not UTF-8"],
    ["?svc-retrys=1", {}, "svc-retrys: unknown setting; did you mean svc-retries?"],
    [
      "?svc-callback=https://c.example&svc-callback-metod=1",
      {},
      "svc-callback-metod: unknown setting; did you mean svc-callback-method?",
    ],
    ["", { "Svc-Lable": "a" }, "svc-lable: unknown setting; did you mean svc-label?"],
    ["?svc-nothing-like-it=1", {}, "svc-nothing-like-it: unknown setting"],
    [
      "?svc-retry-delay=1000*(1+retried)",
      {},
      `svc-retry-delay: unexpected "retried" at 9; expected an operator or ")" (in a query string, + is a ` +
        "space: write %2B)",
    ],
    [
      "?svc-retry-delay=1000*(1%20retried)",
      {},
      `svc-retry-delay: unexpected "retried" at 9; expected an operator or ")"`,
    ],
    [
      "",
      { "svc-retry-delay": "1000*(1+retries)" },
      'svc-retry-delay: unexpected "retries" at 9; expected retried or one of ' +
        "pow, exp, sqrt, abs, floor, ceil, round, min, max",
    ],
    [
      "?upstash-callback-callback=https://c.example",
      {},
      "upstash-callback-callback: requires upstash-callback",
    ],
    [
      "?svc-failure-callback-forward-x-failure-callback=1",
      {},
      "svc-failure-callback-forward-x-failure-callback: requires svc-failure-callback",
    ],
    [
      "?svc-callback=https://c.example&svc-callback-failure-callback-timeout=1s",
      {},
      "svc-callback-failure-callback-timeout: requires svc-callback-failure-callback",
    ],
    ["?svc-forward-a%20b=1", {}, "svc-forward-a b: not the name of an HTTP header"],
    [
      "?svc-forward-a=1%0d%0ab:2",
      {},
      "svc-forward-a: the value contains characters that an HTTP header cannot carry; remove them",
    ],
    [
      "?svc-forward-a=%e6%97%a5",
      {},
      "svc-forward-a: the value contains characters that an HTTP header cannot carry; remove them",
    ],
  ])("%s %o is refused", async (query, headers, error) => {
    expect((await publish(query, headers)).reply).toMatchObject({ status: 400, body: { error } });
  });

  test("unknown settings of the other brand are ignored and named", async () => {
    const { reply, envelope } = await publish("?upstash-new=1&x=1", { "Upstash-Foo": "1" });
    expect(reply).toMatchObject({ status: 200, headers: { "waypost-ignored": "upstash-foo, upstash-new" } });
    expect(envelope?.url).toBe("https://d.example/path?x=1");
  });

  test("labels and redacted fields may come from several headers, parameters or group values", async () => {
    const server = await createTestServer();
    const headers = { "svc-label": ["a", "b,c"], "upstash-redact-fields": ["body", "header[X]"] };
    await server.ask("POST", "/v2/topics/g/endpoints", {
      body: '{"endpoints":[{"url":"https://e.example"}]}',
    });
    expect((await server.ask("PATCH", "/v2/topics/g", { body: JSON.stringify({ headers }) })).status).toBe(
      200,
    );
    await server.ask("POST", "/v2/publish/g");
    expect(server.delivery().message).toMatchObject({
      labels: ["a", "b", "c"],
      redaction: { body: true, headers: ["X"] },
    });
    await server.ask("POST", "/v2/publish/https://e.example?svc-label=a&upstash-label=b&svc-label=a");
    expect(server.delivery().message.labels).toEqual(["a", "b"]);
  });

  test.each([
    ["retries", { "svc-retries": "1001" }],
    ["timeout", { "svc-timeout": "12h1s" }],
    ["delay", { "svc-delay": "367d" }],
    ["not-before", { "svc-not-before": String(testTime / 1000 + 367 * 86_400) }],
    [
      "retries of a callback",
      { "svc-callback": "https://c.example", "svc-callback-retries": "9".repeat(20) },
    ],
  ])("%s beyond the limit has status 412", async (_, headers) => {
    expect((await publish("", headers)).reply).toMatchObject({
      status: 412,
      body: { error: expect.stringMatching(/exceeds the limit of/) },
    });
  });

  test("not-before takes precedence over delay, unless only the delay is in a header", async () => {
    const notBefore = String(testTime / 1000 + 5);
    expect((await publish("", { "svc-delay": "1h", "svc-not-before": notBefore })).envelope?.notBefore).toBe(
      testTime + 5_000,
    );
    expect((await publish(`?svc-not-before=${notBefore}`, { "svc-delay": "1h" })).envelope?.notBefore).toBe(
      testTime + 3_600_000,
    );
    expect((await publish("?svc-delay=1h", { "svc-not-before": notBefore })).envelope?.notBefore).toBe(
      testTime + 5_000,
    );
  });
});
